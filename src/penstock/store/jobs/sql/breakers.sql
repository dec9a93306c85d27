-- Circuit breakers.

-- :breakers
SELECT key, failures, opened_at, retry_at, probes FROM penstock.job_breaker
WHERE queue_id = $1
    AND key = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($2 AS jsonb)))) -- [postgres]
    AND key IN (SELECT value FROM json_each($2)) -- [sqlite]

-- :lock_breakers
INSERT INTO penstock.job_breaker AS b (queue_id, key, failures, probes)
SELECT CAST($1 AS bigint), d.value, 0, 0
FROM jsonb_array_elements_text(CAST($2 AS jsonb)) WITH ORDINALITY AS d (value, key) -- [postgres]
FROM json_each($2) AS d -- [sqlite]
WHERE true
ORDER BY d.key
ON CONFLICT (queue_id, key) DO UPDATE SET failures = b.failures
RETURNING key, failures, opened_at, retry_at, probes

-- :save_breaker
UPDATE penstock.job_breaker SET failures = $3, opened_at = $4, retry_at = $5, probes = $6 WHERE queue_id = $1 AND key = $2

-- :unpark_lane
-- Those that were held up at a breaker that is closed now: they have their places.
UPDATE penstock.job SET ready = 1, due_at = NULL
WHERE lane_id = $1 AND in_lane = 1 AND ready = 0 AND state = 2
RETURNING position
