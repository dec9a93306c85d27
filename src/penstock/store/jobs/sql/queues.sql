-- Job queues and their counters.

-- :insert_queue
INSERT INTO penstock.job_queue (name, settings, created_at) VALUES ($1, $2, $3)
ON CONFLICT (name) DO NOTHING
RETURNING id, name, settings, paused, revision, created_at

-- :queue_named
SELECT id, name, settings, paused, revision, created_at FROM penstock.job_queue WHERE name = $1

-- :queue_numbered
SELECT id, name, settings, paused, revision, created_at FROM penstock.job_queue WHERE id = $1

-- :queue_kept
-- Who enqueues or saves a schedule takes this, so that the queue is not deleted meanwhile.
SELECT id, name, settings, paused, revision, created_at FROM penstock.job_queue WHERE name = $1
FOR KEY SHARE -- [postgres]

-- :queues_after
SELECT id, name, settings, paused, revision, created_at FROM penstock.job_queue WHERE name > $1 ORDER BY name LIMIT $2

-- :save_queue
UPDATE penstock.job_queue SET settings = $3, paused = $4, revision = revision + 1 WHERE id = $1 AND revision = $2
RETURNING id, name, settings, paused, revision, created_at

-- :queue_to_delete
SELECT id FROM penstock.job_queue WHERE id = $1
FOR UPDATE -- [postgres]

-- :queue_in_use
SELECT
    CASE
        -- In the order of an index, or PostgreSQL may look for the first one in all of the table.
        WHEN (SELECT position FROM penstock.job WHERE queue_id = $1 ORDER BY state, position LIMIT 1) > 0 THEN 'jobs'
        WHEN EXISTS (SELECT 1 FROM penstock.job_schedule WHERE queue_id = $1) THEN 'schedules'
        WHEN EXISTS (SELECT 1 FROM penstock.job_gather WHERE queue_id = $1 AND ended_at IS NULL) THEN 'gathers'
    END

-- :delete_queue
DELETE FROM penstock.job_queue WHERE id = $1

-- :delete_queue_counts
DELETE FROM penstock.job_count WHERE queue_id = $1

-- :delete_queue_breakers
DELETE FROM penstock.job_breaker WHERE queue_id = $1

-- :delete_queue_operations
DELETE FROM penstock.job_operation WHERE queue_id = $1

-- :add_count
INSERT INTO penstock.job_count AS c (queue_id, state, shard, number) VALUES ($1, $2, $3, $4)
ON CONFLICT (queue_id, state, shard) DO UPDATE SET number = c.number + excluded.number

-- :counts
SELECT state, CAST(sum(number) AS bigint) FROM penstock.job_count WHERE queue_id = $1 GROUP BY state

-- :oldest_queued
-- Positions follow the order of enqueueing, so who has waited for the longest is all but surely among the first.
SELECT CAST(min(since) AS bigint) FROM (
    SELECT CASE WHEN queued_at > enqueued_at THEN queued_at ELSE enqueued_at END AS since
    FROM penstock.job WHERE queue_id = $1 AND state = 2 ORDER BY position LIMIT $2
) AS first
