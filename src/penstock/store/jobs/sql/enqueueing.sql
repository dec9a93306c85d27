-- Enqueueing.

-- :lock_queue
-- On a strict queue jobs are enqueued one after the other, so that its bound and its rates are exact.
SELECT id FROM penstock.job_queue WHERE id = $1
FOR UPDATE -- [postgres]

-- :take_turns
-- Who brings several unique keys, in whatever order, goes one after the other: two would wait for each other. Those who
-- bring one or none go on.
SELECT id FROM penstock.job_queue WHERE id = $1
FOR NO KEY UPDATE -- [postgres]

-- :survey
-- The queue, which nobody can delete from now on, with how many jobs wait in it; jobs that have these ids already; and,
-- with 0 for their state, ids of jobs that were purged.
WITH queue AS (
    SELECT id FROM penstock.job_queue WHERE id = $1
    FOR KEY SHARE -- [postgres]
)
SELECT '', 0, CAST((
    SELECT coalesce(sum(number), 0) FROM penstock.job_count WHERE queue_id = $1 AND state IN (1, 2, 5)
) AS bigint) FROM queue
UNION ALL
SELECT id, state, 0 FROM penstock.job
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($2 AS jsonb)))) -- [postgres]
WHERE id IN (SELECT value FROM json_each($2)) -- [sqlite]
UNION ALL
SELECT key, 0, 0 FROM penstock.job_spent
WHERE key = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($2 AS jsonb)))) -- [postgres]
WHERE key IN (SELECT value FROM json_each($2)) -- [sqlite]
    AND expires_at > CAST($3 AS bigint)

-- :known_keys
-- A job that was purged lately counts as cancelled (8).
SELECT k.key, k.fingerprint, k.job_id, coalesce(j.state, CASE WHEN s.key IS NOT NULL THEN 8 END)
FROM penstock.job_key k
LEFT JOIN penstock.job j ON j.id = k.job_id
LEFT JOIN penstock.job_spent s ON s.key = k.job_id AND s.expires_at > $3
WHERE k.queue_id = $1 AND k.expires_at > $3
    AND k.key = ANY (ARRAY(SELECT decode(jsonb_array_elements_text(CAST($2 AS jsonb)), 'hex'))) -- [postgres]
    AND k.key IN (SELECT unhex(value) FROM json_each($2)) -- [sqlite]

-- :insert_keys
-- Keys that are not in use, or not any more; of the others nothing comes back.
INSERT INTO penstock.job_key AS k (queue_id, key, job_id, fingerprint, expires_at)
SELECT CAST($1 AS bigint),
    decode(d.value ->> 0, 'hex'), d.value ->> 1, decode(d.value ->> 2, 'hex'), -- [postgres]
    unhex(d.value ->> 0), d.value ->> 1, unhex(d.value ->> 2), -- [sqlite]
    CAST($3 AS bigint)
FROM jsonb_array_elements(CAST($2 AS jsonb)) WITH ORDINALITY AS d (value, key) -- [postgres]
FROM json_each($2) AS d -- [sqlite]
WHERE true
ORDER BY d.key
ON CONFLICT (queue_id, key) DO UPDATE
SET job_id = excluded.job_id, fingerprint = excluded.fingerprint, expires_at = excluded.expires_at
WHERE k.expires_at <= CAST($4 AS bigint)
RETURNING key

-- :repoint_key
UPDATE penstock.job_key SET job_id = $3 WHERE queue_id = $1 AND key = $2

-- :drop_key
DELETE FROM penstock.job_key WHERE queue_id = $1 AND key = $2 AND job_id = $3

-- :unique_jobs
-- $2 are tenants and keys. The last column is when a job expires that has not started yet.
SELECT j.tenant, j.unique_key, j.id, j.state, CASE WHEN j.attempts = 0 THEN j.expires_at END
FROM jsonb_array_elements(CAST($2 AS jsonb)) AS d (value) -- [postgres]
FROM json_each($2) AS d -- [sqlite]
CROSS JOIN penstock.job AS j
WHERE j.queue_id = $1 AND j.finished_at IS NULL AND j.unique_key IS NOT NULL
    AND j.tenant = d.value ->> 0 AND j.unique_key = d.value ->> 1

-- :insert_jobs
-- Jobs, in their order; of those whose id or unique key is there already nothing comes back.
INSERT INTO penstock.job (
    queue_id, enqueued_at, id, task, tenant, priority, state, ready, due_at, lane_id, in_lane, unique_key, rank, gate,
    expires_at, retention_ms
)
SELECT CAST($1 AS bigint), CAST($3 AS bigint), d.value ->> 0, d.value ->> 1, d.value ->> 2,
    CAST(d.value ->> 3 AS smallint), CAST(d.value ->> 4 AS smallint), CAST(d.value ->> 5 AS smallint),
    CAST(d.value ->> 6 AS bigint), CAST(d.value ->> 7 AS bigint), CAST(d.value ->> 8 AS smallint), d.value ->> 9,
    CAST(d.value ->> 10 AS bigint), d.value ->> 11, CAST(d.value ->> 12 AS bigint), CAST(d.value ->> 13 AS bigint)
FROM jsonb_array_elements(CAST($2 AS jsonb)) WITH ORDINALITY AS d (value, key) -- [postgres]
FROM json_each($2) AS d -- [sqlite]
WHERE true
ORDER BY d.key
ON CONFLICT DO NOTHING
RETURNING id, position

-- :insert_content
INSERT INTO penstock.job_content (position, payload, options) VALUES ($1, $2, $3)

-- :insert_tag
INSERT INTO penstock.job_tag (tag, position) VALUES ($1, $2)

-- :lock_buckets
INSERT INTO penstock.job_bucket AS b (queue_id, whole, tenant, full_at_us)
SELECT CAST($1 AS bigint), CAST(d.value ->> 0 AS smallint), d.value ->> 1, 0
FROM jsonb_array_elements(CAST($2 AS jsonb)) WITH ORDINALITY AS d (value, key) -- [postgres]
FROM json_each($2) AS d -- [sqlite]
WHERE true
ORDER BY d.key
ON CONFLICT (queue_id, whole, tenant) DO UPDATE SET full_at_us = b.full_at_us
RETURNING whole, tenant, full_at_us

-- :save_bucket
UPDATE penstock.job_bucket SET full_at_us = $4 WHERE queue_id = $1 AND whole = $2 AND tenant = $3
