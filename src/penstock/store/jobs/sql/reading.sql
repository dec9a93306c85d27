-- Jobs as users look at them. A page is found by walking an index by position; what an index does not answer is looked
-- up in a bounded stretch of it, from `before` down to a floor.

-- :job_by_id
SELECT j.position, j.id, j.queue_id, j.task, j.tenant, j.priority, j.state, j.ready, j.due_at, j.lane_id, j.in_lane,
    j.fence, j.attempts, j.failures, j.losses, j.events, j.times_out_at, j.cancel_requested, j.unique_key,
    j.failure_kind, j.worker, j.enqueued_at, j.finished_at, j.expires_at, j.retention_ms, c.options, q.name,
    q.settings, c.payload, c.result, c.failure
FROM penstock.job AS j
INNER JOIN penstock.job_content AS c ON c.position = j.position
INNER JOIN penstock.job_queue AS q ON q.id = j.queue_id
WHERE j.id = $1

-- :jobs_at
SELECT j.position, j.id, j.queue_id, j.task, j.tenant, j.priority, j.state, j.ready, j.due_at, j.lane_id, j.in_lane,
    j.fence, j.attempts, j.failures, j.losses, j.events, j.times_out_at, j.cancel_requested, j.unique_key,
    j.failure_kind, j.worker, j.enqueued_at, j.finished_at, j.expires_at, j.retention_ms, c.options, q.name,
    q.settings, c.payload, c.result, c.failure
FROM penstock.job AS j
INNER JOIN penstock.job_content AS c ON c.position = j.position
INNER JOIN penstock.job_queue AS q ON q.id = j.queue_id
WHERE j.position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE j.position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]

-- :attempts_of
SELECT number, worker, started_at, ended_at, outcome, failure FROM penstock.job_attempt
WHERE position = $1 ORDER BY fence DESC LIMIT $2

-- :queues_among
SELECT id FROM penstock.job_queue
WHERE name IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE name = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]

-- :queue_ids
SELECT id FROM penstock.job_queue ORDER BY id LIMIT $1

-- :state_floor
SELECT position FROM penstock.job WHERE queue_id = $3 AND state = $4 AND position < $1
ORDER BY position DESC LIMIT 1 OFFSET $2

-- :tag_floor
SELECT position FROM penstock.job_tag WHERE tag = $3 AND position < $1 ORDER BY position DESC LIMIT 1 OFFSET $2

-- :walk_in_order
-- PostgreSQL may take a walk over all positions for a few rows that are best sorted. Until the end of the transaction.
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true) -- [postgres]
SELECT 1 -- [sqlite]

-- :any_floor
SELECT position FROM penstock.job WHERE position < $1 ORDER BY position DESC LIMIT 1 OFFSET $2

-- :positions_by_state
SELECT position FROM penstock.job
WHERE queue_id = $9 AND state = $10 AND position < $1 AND position >= $2
    AND (CAST($4 AS text) IS NULL OR task = $4)
    AND (CAST($5 AS text) IS NULL OR tenant = $5)
    AND (CAST($6 AS text) IS NULL OR failure_kind = $6)
    AND enqueued_at >= $7 AND enqueued_at < $8
ORDER BY position DESC LIMIT $3

-- :positions_by_tag
-- The states are bits of a number, and the queues a JSON array.
SELECT t.position FROM penstock.job_tag AS t CROSS JOIN penstock.job AS j
WHERE t.tag = $11 AND t.position < $1 AND t.position >= $2 AND j.position = t.position
    AND (CAST($4 AS text) IS NULL OR j.task = $4)
    AND (CAST($5 AS text) IS NULL OR j.tenant = $5)
    AND (CAST($6 AS text) IS NULL OR j.failure_kind = $6)
    AND j.enqueued_at >= $7 AND j.enqueued_at < $8
    AND (CAST($9 AS bigint) >> CAST(j.state AS int)) & 1 = 1
    AND (CAST($10 AS text) IS NULL OR j.queue_id IN (SELECT value FROM json_each($10))) -- [sqlite]
    AND (CAST($10 AS text) IS NULL OR j.queue_id = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($10 AS jsonb)) AS bigint)))) -- [postgres]
ORDER BY t.position DESC LIMIT $3

-- :positions_of_any
SELECT position FROM penstock.job
WHERE position < $1 AND position >= $2
    AND (CAST($4 AS text) IS NULL OR task = $4)
    AND (CAST($5 AS text) IS NULL OR tenant = $5)
    AND (CAST($6 AS text) IS NULL OR failure_kind = $6)
    AND enqueued_at >= $7 AND enqueued_at < $8
    AND (CAST($9 AS bigint) >> CAST(state AS int)) & 1 = 1
    AND (CAST($10 AS text) IS NULL OR queue_id IN (SELECT value FROM json_each($10))) -- [sqlite]
    AND (CAST($10 AS text) IS NULL OR queue_id = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($10 AS jsonb)) AS bigint)))) -- [postgres]
ORDER BY position DESC LIMIT $3

-- :content_sizes
SELECT position, octet_length(payload) + coalesce(octet_length(result), 0) + coalesce(octet_length(failure), 0)
FROM penstock.job_content
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]

-- :dead_page
SELECT position, id, task, coalesce(failure_kind, ''), finished_at FROM penstock.job
WHERE queue_id = $1 AND state = 7 AND position < $2 ORDER BY position DESC LIMIT $3

-- :leases
-- Where the leases stand whose jobs and fences are in $1. An offer that was accepted has an attempt of its fence.
SELECT j.id, CAST(d.value ->> 1 AS int), j.state, j.fence, j.due_at, j.times_out_at, j.finished_at, a.outcome,
    a.answer IS NOT NULL, CASE WHEN j.attempts = 0 THEN j.expires_at END
FROM jsonb_array_elements(CAST($1 AS jsonb)) AS d (value) -- [postgres]
FROM json_each($1) AS d -- [sqlite]
JOIN penstock.job j ON j.id = d.value ->> 0
LEFT JOIN penstock.job_attempt a ON a.position = j.position AND a.fence = CAST(d.value ->> 1 AS int)
