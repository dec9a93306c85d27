-- Operations: something done to many jobs, in steps.

-- :insert_operation
INSERT INTO penstock.job_operation
    (id, queue_id, kind, wanted, rate, state, done, cursor, last, next_at, started_at, at_most)
VALUES
    ($1, $2, $3, $4, $5, 0, 0, 0, (SELECT coalesce(max(position), 0) FROM penstock.job), $6, $6, $7)
ON CONFLICT (id) DO NOTHING

-- :forget_operations
-- Those of a queue that have ended, but for the newest, and for those that may still be asked for again.
DELETE FROM penstock.job_operation WHERE ended_at IS NOT NULL AND started_at <= $4 AND id IN (
    SELECT id FROM penstock.job_operation WHERE queue_id = $1 ORDER BY started_at DESC, id DESC LIMIT $3 OFFSET $2
)

-- :operation_by_id
SELECT o.id, o.kind, q.name, o.wanted, o.rate, o.state, o.done, o.started_at, o.ended_at, o.at_most
FROM penstock.job_operation AS o
INNER JOIN penstock.job_queue AS q ON q.id = o.queue_id
WHERE o.id = $1

-- :operations_of
SELECT o.id, o.kind, q.name, o.wanted, o.rate, o.state, o.done, o.started_at, o.ended_at, o.at_most
FROM penstock.job_operation AS o
INNER JOIN penstock.job_queue AS q ON q.id = o.queue_id
WHERE o.queue_id = $1 ORDER BY o.started_at DESC, o.id DESC LIMIT $2

-- :cancel_operation
UPDATE penstock.job_operation SET state = 2, next_at = NULL, ended_at = $2 WHERE id = $1 AND state = 0

-- :due_operations
SELECT id, queue_id, kind, wanted, rate, done, cursor, last, at_most FROM penstock.job_operation
WHERE next_at <= $1 ORDER BY next_at LIMIT $2
FOR UPDATE SKIP LOCKED -- [postgres]

-- :next_operation
SELECT min(next_at) FROM penstock.job_operation WHERE next_at IS NOT NULL

-- :advance_operation
UPDATE penstock.job_operation SET state = $2, done = $3, cursor = $4, next_at = $5, ended_at = $6 WHERE id = $1

-- :ceiling
SELECT position FROM penstock.job WHERE queue_id = $1 AND state = $2 AND position > $3
ORDER BY position LIMIT 1 OFFSET $4

-- :jobs_ahead
SELECT j.position, j.id FROM penstock.job AS j
WHERE j.queue_id = $1 AND j.state = $2 AND j.position > $3 AND j.position <= $4
    AND (CAST($6 AS text) IS NULL OR j.task = $6)
    AND (CAST($7 AS text) IS NULL OR j.tenant = $7)
    AND (CAST($8 AS text) IS NULL OR j.failure_kind = $8)
    AND j.enqueued_at >= $9 AND j.enqueued_at < $10
    AND (CAST($11 AS text) IS NULL OR EXISTS (
        SELECT 1 FROM penstock.job_tag AS t WHERE t.tag = $11 AND t.position = j.position
    ))
ORDER BY j.position LIMIT $5
