-- Circuit breakers.

-- :breakers
SELECT b.shared, b.tenant, b.key, b.failures, b.opened_at, b.retry_at, b.probes
FROM jsonb_array_elements(CAST($2 AS jsonb)) AS d (value) -- [postgres]
FROM json_each($2) AS d -- [sqlite]
CROSS JOIN penstock.job_breaker AS b
WHERE b.queue_id = $1
    AND b.shared = CAST(d.value ->> 0 AS smallint) AND b.tenant = d.value ->> 1 AND b.key = d.value ->> 2

-- :lock_breakers
INSERT INTO penstock.job_breaker AS b (queue_id, shared, tenant, key, failures, probes)
SELECT CAST($1 AS bigint), CAST(d.value ->> 0 AS smallint), d.value ->> 1, d.value ->> 2, 0, 0
FROM jsonb_array_elements(CAST($2 AS jsonb)) WITH ORDINALITY AS d (value, key) -- [postgres]
FROM json_each($2) AS d -- [sqlite]
WHERE true
ORDER BY d.key
ON CONFLICT (queue_id, shared, tenant, key) DO UPDATE SET failures = b.failures
RETURNING shared, tenant, key, failures, opened_at, retry_at, probes

-- :save_breaker
UPDATE penstock.job_breaker SET failures = $5, opened_at = $6, retry_at = $7, probes = $8
WHERE queue_id = $1 AND shared = $2 AND tenant = $3 AND key = $4

-- :unpark_lane
-- Those that were held up at a breaker that is closed now: they have their places.
UPDATE penstock.job SET ready = CASE WHEN gate IS NULL THEN 1 ELSE 2 END,
    due_at = CASE WHEN attempts = 0 THEN expires_at END
WHERE lane_id = $1 AND in_lane = 1 AND ready = 0 AND state = 2
RETURNING gate
