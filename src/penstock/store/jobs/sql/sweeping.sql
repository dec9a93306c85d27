-- Upkeep: what is over is removed, a bounded number of rows at a time.

-- :delete_expired_keys
DELETE FROM penstock.job_key WHERE (queue_id, key) IN (
    SELECT queue_id, key FROM penstock.job_key WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :delete_empty_lanes
DELETE FROM penstock.job_lane WHERE id IN (
    SELECT id FROM penstock.job_lane WHERE jobs = 0 ORDER BY id LIMIT $1
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :delete_full_buckets
-- One that is full is the same as none.
DELETE FROM penstock.job_bucket WHERE (queue_id, whole, tenant) IN (
    SELECT queue_id, whole, tenant FROM penstock.job_bucket WHERE full_at_us <= $1 ORDER BY full_at_us LIMIT $2
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :delete_closed_breakers
-- One that is closed and has seen no failure is the same as none.
DELETE FROM penstock.job_breaker WHERE (queue_id, shared, tenant, key) IN (
    SELECT queue_id, shared, tenant, key FROM penstock.job_breaker WHERE failures = 0 AND retry_at IS NULL
    ORDER BY queue_id, shared, tenant, key LIMIT $1
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :delete_old_operations
DELETE FROM penstock.job_operation WHERE id IN (
    SELECT id FROM penstock.job_operation WHERE ended_at <= $1 ORDER BY ended_at LIMIT $2
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :queues_to_sweep
SELECT id, settings FROM penstock.job_queue WHERE id > $1 ORDER BY id LIMIT $2

-- :finished_states
-- Which of these queues have finished jobs, and in which states.
SELECT queue_id, state FROM penstock.job_count
WHERE queue_id > $1 AND queue_id <= $2 AND state IN (6, 7, 8)
GROUP BY queue_id, state HAVING sum(number) > 0 ORDER BY queue_id, state

-- :jobs_past_retention
-- By the retention of their queue. The last columns tell whether it is still needed, by its own retention, its idempotency
-- key or its gather, and whether it is a member of one.
SELECT j.position, j.id, j.finished_at, j.attempts + j.events,
    octet_length(c.payload) + coalesce(octet_length(c.result), 0) + coalesce(octet_length(c.failure), 0),
    CASE WHEN EXISTS (
        SELECT 1 FROM penstock.job_key AS k WHERE k.job_id = j.id AND k.expires_at > $7
    ) OR EXISTS (
        SELECT 1 FROM penstock.job_gather_member AS m INNER JOIN penstock.job_gather AS g ON g.id = m.gather_id
        WHERE m.job_id = j.id AND (g.kept_until IS NULL OR g.kept_until > $7)
    ) OR (j.state <> 7 AND j.finished_at + j.retention_ms > $7) THEN 1 ELSE 0 END,
    CASE WHEN EXISTS (SELECT 1 FROM penstock.job_gather_member AS m WHERE m.job_id = j.id) THEN 1 ELSE 0 END
FROM penstock.job AS j
INNER JOIN penstock.job_content AS c ON c.position = j.position
WHERE j.queue_id = $1 AND j.state = $2 AND j.finished_at <= $3 AND (j.finished_at, j.position) > ($4, $5)
ORDER BY j.finished_at, j.position LIMIT $6
FOR UPDATE OF j SKIP LOCKED -- [postgres]

-- :jobs_past_own_retention
-- The same by their own retention: not all of them are past that of their queue.
SELECT j.position, j.id, j.finished_at + j.retention_ms, j.attempts + j.events,
    octet_length(c.payload) + coalesce(octet_length(c.result), 0) + coalesce(octet_length(c.failure), 0),
    CASE WHEN EXISTS (
        SELECT 1 FROM penstock.job_key AS k WHERE k.job_id = j.id AND k.expires_at > $3
    ) OR EXISTS (
        SELECT 1 FROM penstock.job_gather_member AS m INNER JOIN penstock.job_gather AS g ON g.id = m.gather_id
        WHERE m.job_id = j.id AND (g.kept_until IS NULL OR g.kept_until > $3)
    ) THEN 1 ELSE 0 END,
    CASE WHEN EXISTS (SELECT 1 FROM penstock.job_gather_member AS m WHERE m.job_id = j.id) THEN 1 ELSE 0 END
FROM penstock.job AS j
INNER JOIN penstock.job_content AS c ON c.position = j.position
WHERE j.queue_id = $1 AND j.state = $2 AND j.finished_at IS NOT NULL AND j.retention_ms IS NOT NULL
    AND j.finished_at + j.retention_ms >= $4 AND j.finished_at + j.retention_ms <= $3
    AND (j.finished_at + j.retention_ms, j.position) > ($4, $5)
ORDER BY j.finished_at + j.retention_ms, j.position LIMIT $6
FOR UPDATE OF j SKIP LOCKED -- [postgres]

-- Removing jobs: the arguments are positions, as a JSON array.

-- :remove_jobs
DELETE FROM penstock.job
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]

-- :remove_contents
DELETE FROM penstock.job_content
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]

-- :remove_tags
DELETE FROM penstock.job_tag
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]

-- :remove_keys
-- By the jobs' ids, not their positions.
DELETE FROM penstock.job_key
WHERE job_id IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE job_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]

-- :remove_attempts
DELETE FROM penstock.job_attempt
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]

-- :remove_events
DELETE FROM penstock.job_event
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]

-- What a removed job has left behind.

-- :note_removed
INSERT INTO penstock.job_removed (position) VALUES ($1) ON CONFLICT (position) DO NOTHING

-- :removed
SELECT position FROM penstock.job_removed ORDER BY position LIMIT $1
FOR UPDATE SKIP LOCKED -- [postgres]

-- :remove_some_events
DELETE FROM penstock.job_event WHERE position = $1 AND seq IN (
    SELECT seq FROM penstock.job_event WHERE position = $1 ORDER BY seq LIMIT $2
)
RETURNING 1

-- :remove_some_attempts
DELETE FROM penstock.job_attempt WHERE position = $1 AND fence IN (
    SELECT fence FROM penstock.job_attempt WHERE position = $1 ORDER BY fence LIMIT $2
)
RETURNING 1

-- :forget_removed
DELETE FROM penstock.job_removed WHERE position = $1
