-- Jobs: reading and locking them, and writing what became of them.

-- Records: the columns that rows.JobRecord takes. Jobs without a lane are locked at once; of those of lanes, the lanes
-- are locked first, so that whoever holds a lane is alone with all of its jobs but for those that are offered.

-- :lock_jobs
SELECT j.position, j.id, j.queue_id, j.task, j.tenant, j.priority, j.state, j.ready, j.due_at, j.lane_id, j.in_lane,
    j.fence, j.attempts, j.failures, j.losses, j.events, j.times_out_at, j.cancel_requested, j.unique_key,
    j.failure_kind, j.worker, j.enqueued_at, j.finished_at, j.expires_at, j.retention_ms, c.options, q.name,
    q.settings
FROM penstock.job j
JOIN penstock.job_content c ON c.position = j.position
JOIN penstock.job_queue q ON q.id = j.queue_id
WHERE j.id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]
WHERE j.id IN (SELECT value FROM json_each($1)) -- [sqlite]
    AND (CASE WHEN j.lane_id IS NULL THEN 0 ELSE 1 END) = CAST($2 AS int)
ORDER BY j.position
FOR UPDATE OF j -- [postgres]

-- :lock_due_jobs
SELECT j.position, j.id, j.queue_id, j.task, j.tenant, j.priority, j.state, j.ready, j.due_at, j.lane_id, j.in_lane,
    j.fence, j.attempts, j.failures, j.losses, j.events, j.times_out_at, j.cancel_requested, j.unique_key,
    j.failure_kind, j.worker, j.enqueued_at, j.finished_at, j.expires_at, j.retention_ms, c.options, q.name,
    q.settings
FROM penstock.job j
JOIN penstock.job_content c ON c.position = j.position
JOIN penstock.job_queue q ON q.id = j.queue_id
WHERE j.position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]
WHERE j.position IN (SELECT value FROM json_each($1)) -- [sqlite]
    AND j.due_at <= CAST($2 AS bigint)
ORDER BY j.position
FOR UPDATE OF j SKIP LOCKED -- [postgres]

-- :save_job
UPDATE penstock.job SET state = $2, ready = $3, due_at = $4, lane_id = $5, in_lane = $6, attempts = $7, failures = $8,
    losses = $9, events = $10, times_out_at = $11, cancel_requested = $12, failure_kind = $13, worker = $14,
    finished_at = $15,
    -- It waits for a worker from when it came due; an offer that came to nothing does not make it wait anew.
    queued_at = CASE
        WHEN CAST($2 AS smallint) <> 2 OR state IN (2, 3) THEN queued_at
        WHEN state IN (1, 5) AND due_at < $16 THEN due_at
        ELSE $16
    END,
    rank = coalesce(CAST($17 AS bigint), rank)
WHERE position = $1

-- :forget_expiry
UPDATE penstock.job SET expires_at = NULL WHERE position = $1

-- :save_result
UPDATE penstock.job_content SET result = $2 WHERE position = $1

-- :save_failure
UPDATE penstock.job_content SET failure = $2 WHERE position = $1

-- Attempts.

-- :start_attempt
INSERT INTO penstock.job_attempt (position, fence, number, worker, started_at, outcome) VALUES ($1, $2, $3, $4, $5, 0)

-- :end_attempt
UPDATE penstock.job_attempt SET ended_at = $3, outcome = $4, answer = $5, failure = $6 WHERE position = $1 AND fence = $2

-- :attempt_answer
SELECT answer FROM penstock.job_attempt WHERE position = $1 AND fence = $2 AND ended_at IS NOT NULL

-- Events.

-- :insert_event
INSERT INTO penstock.job_event (position, seq, attempt, event_id, kind, data, at) VALUES ($1, $2, $3, $4, $5, $6, $7)

-- What has come due.

-- :due_jobs
-- Of all queues, those that have been due for the longest.
SELECT position, lane_id FROM penstock.job WHERE due_at <= $1 AND finished_at IS NULL ORDER BY due_at LIMIT $2

-- :next_due
SELECT min(due_at) FROM penstock.job WHERE due_at IS NOT NULL AND finished_at IS NULL

-- Offering.

-- :look
-- What an offer has to know: what is due (0), the tenants that have jobs ready, up to $5 of them, those after $4 (1)
-- and those before it (2), when the next job comes due or the next token comes (3), and the gates to be looked at, up to
-- $6 of them (4).
WITH RECURSIVE
later (tenant, number) AS (
    SELECT (SELECT min(tenant) FROM penstock.job WHERE queue_id = $1 AND ready = 1 AND tenant > CAST($4 AS text)), 1
    FROM penstock.job_queue WHERE id = $1 AND paused = 0
    UNION ALL
    SELECT (SELECT min(tenant) FROM penstock.job WHERE queue_id = $1 AND ready = 1 AND tenant > later.tenant), number + 1
    FROM later WHERE tenant IS NOT NULL AND number < CAST($5 AS int)
),
sooner (tenant, number) AS (
    SELECT (SELECT min(tenant) FROM penstock.job WHERE queue_id = $1 AND ready = 1 AND tenant <= CAST($4 AS text)), 1
    FROM penstock.job_queue WHERE id = $1 AND paused = 0
    UNION ALL
    SELECT (
        SELECT min(tenant) FROM penstock.job
        WHERE queue_id = $1 AND ready = 1 AND tenant > sooner.tenant AND tenant <= CAST($4 AS text)
    ), number + 1
    FROM sooner WHERE tenant IS NOT NULL AND number < CAST($5 AS int)
)
SELECT 0, position, lane_id, '' FROM (
    SELECT position, lane_id FROM penstock.job WHERE queue_id = $1 AND due_at <= CAST($2 AS bigint)
    ORDER BY due_at LIMIT $3
) AS due
UNION ALL SELECT 1, 0, NULL, tenant FROM later WHERE tenant IS NOT NULL
UNION ALL SELECT 2, 0, NULL, tenant FROM sooner WHERE tenant IS NOT NULL
UNION ALL SELECT 3, due_at, NULL, '' FROM (
    SELECT due_at FROM penstock.job WHERE queue_id = $1 AND due_at > CAST($2 AS bigint) ORDER BY due_at LIMIT 1
) AS next
UNION ALL SELECT 3, next_at, NULL, '' FROM (
    SELECT next_at FROM penstock.job_gate WHERE queue_id = $1 AND next_at > CAST($2 AS bigint) ORDER BY next_at LIMIT 1
) AS next_gate
UNION ALL SELECT 4, 0, NULL, gate FROM (
    SELECT gate FROM penstock.job_gate
    WHERE queue_id = $1 AND next_at <= CAST($2 AS bigint)
        AND EXISTS (SELECT 1 FROM penstock.job_queue WHERE id = $1 AND paused = 0)
    ORDER BY next_at LIMIT $6
) AS gate

-- :look_for_tasks
-- The same for a worker that takes the tasks $7 only, with the tenants that have jobs of these. However many jobs of other
-- tasks are ready, they are not looked at.
WITH RECURSIVE
wanted (task) AS MATERIALIZED (
    SELECT d.task FROM jsonb_array_elements_text(CAST($7 AS jsonb)) AS d (task) -- [postgres]
    SELECT d.value FROM json_each($7) AS d -- [sqlite]
    WHERE EXISTS (SELECT 1 FROM penstock.job AS j WHERE j.queue_id = $1 AND j.ready = 1 AND j.task = d.task) -- [postgres]
    WHERE EXISTS (SELECT 1 FROM job AS j WHERE j.queue_id = $1 AND j.ready = 1 AND j.task = d.value) -- [sqlite]
),
later (tenant, number) AS (
    SELECT (
        SELECT min(found.tenant) FROM (
            SELECT (
                SELECT min(j.tenant) FROM penstock.job AS j
                WHERE j.queue_id = $1 AND j.ready = 1 AND j.task = wanted.task AND j.tenant > CAST($4 AS text)
            ) AS tenant FROM wanted
        ) AS found
    ), 1
    FROM penstock.job_queue WHERE id = $1 AND paused = 0
    UNION ALL
    SELECT (
        SELECT min(found.tenant) FROM (
            SELECT (
                SELECT min(j.tenant) FROM penstock.job AS j
                WHERE j.queue_id = $1 AND j.ready = 1 AND j.task = wanted.task AND j.tenant > later.tenant
            ) AS tenant FROM wanted
        ) AS found
    ), number + 1
    FROM later WHERE tenant IS NOT NULL AND number < CAST($5 AS int)
),
sooner (tenant, number) AS (
    SELECT (
        SELECT min(found.tenant) FROM (
            SELECT (
                SELECT min(j.tenant) FROM penstock.job AS j
                WHERE j.queue_id = $1 AND j.ready = 1 AND j.task = wanted.task AND j.tenant <= CAST($4 AS text)
            ) AS tenant FROM wanted
        ) AS found
    ), 1
    FROM penstock.job_queue WHERE id = $1 AND paused = 0
    UNION ALL
    SELECT (
        SELECT min(found.tenant) FROM (
            SELECT (
                SELECT min(j.tenant) FROM penstock.job AS j
                WHERE j.queue_id = $1 AND j.ready = 1 AND j.task = wanted.task AND j.tenant > sooner.tenant AND j.tenant <= CAST($4 AS text)
            ) AS tenant FROM wanted
        ) AS found
    ), number + 1
    FROM sooner WHERE tenant IS NOT NULL AND number < CAST($5 AS int)
)
SELECT 0, position, lane_id, '' FROM (
    SELECT position, lane_id FROM penstock.job WHERE queue_id = $1 AND due_at <= CAST($2 AS bigint)
    ORDER BY due_at LIMIT $3
) AS due
UNION ALL SELECT 1, 0, NULL, tenant FROM later WHERE tenant IS NOT NULL
UNION ALL SELECT 2, 0, NULL, tenant FROM sooner WHERE tenant IS NOT NULL
UNION ALL SELECT 3, due_at, NULL, '' FROM (
    SELECT due_at FROM penstock.job WHERE queue_id = $1 AND due_at > CAST($2 AS bigint) ORDER BY due_at LIMIT 1
) AS next
UNION ALL SELECT 3, next_at, NULL, '' FROM (
    SELECT next_at FROM penstock.job_gate WHERE queue_id = $1 AND next_at > CAST($2 AS bigint) ORDER BY next_at LIMIT 1
) AS next_gate
UNION ALL SELECT 4, 0, NULL, gate FROM (
    SELECT gate FROM penstock.job_gate
    WHERE queue_id = $1 AND next_at <= CAST($2 AS bigint)
        AND EXISTS (SELECT 1 FROM penstock.job_queue WHERE id = $1 AND paused = 0)
    ORDER BY next_at LIMIT $6
) AS gate

-- :take
-- What may be offered comes due only to expire, and is not offered from then on, whether anybody has given effect to it or
-- not. An offer ends when its job expires. With a start rate it lasts: by its end its token is given back.
WITH next AS MATERIALIZED (
    SELECT position FROM penstock.job
    WHERE queue_id = $1 AND ready = 1 AND tenant = $2 AND (due_at IS NULL OR due_at > CAST($7 AS bigint))
    ORDER BY rank, position LIMIT $3
    FOR UPDATE SKIP LOCKED -- [postgres]
)
UPDATE penstock.job SET state = 3, ready = 0, fence = job.fence + 1, worker = $5, turn = $6,
    due_at = CASE
        WHEN job.expires_at < CAST($4 AS bigint) AND job.attempts = 0 AND job.gate IS NULL THEN job.expires_at
        ELSE CAST($4 AS bigint)
    END
FROM next WHERE job.position = next.position
RETURNING job.position, job.id, job.task, job.tenant, job.priority, job.enqueued_at, job.fence, job.attempts, job.failures, job.losses,
    job.lane_id,
    (SELECT c.payload FROM penstock.job_content c WHERE c.position = job.position),
    (SELECT c.options FROM penstock.job_content c WHERE c.position = job.position),
    job.due_at, job.rank

-- :take_of_tasks
-- The same of the tasks $8 only.
WITH next AS MATERIALIZED (
    SELECT found.position FROM jsonb_array_elements_text(CAST($8 AS jsonb)) AS d (task) -- [postgres]
    CROSS JOIN LATERAL ( -- [postgres]
        SELECT position, rank FROM penstock.job WHERE queue_id = $1 AND ready = 1 AND task = d.task AND tenant = $2 -- [postgres]
            AND (due_at IS NULL OR due_at > CAST($7 AS bigint)) -- [postgres]
        ORDER BY rank, position LIMIT $3 -- [postgres]
        FOR UPDATE SKIP LOCKED -- [postgres]
    ) AS found -- [postgres]
    SELECT found.position FROM json_each($8) AS d -- [sqlite]
    CROSS JOIN job AS found ON found.position IN ( -- [sqlite]
        SELECT position FROM job WHERE queue_id = $1 AND ready = 1 AND task = d.value AND tenant = $2 -- [sqlite]
            AND (due_at IS NULL OR due_at > $7) -- [sqlite]
        ORDER BY rank, position LIMIT $3 -- [sqlite]
    ) -- [sqlite]
    ORDER BY found.rank, found.position LIMIT $3
)
UPDATE penstock.job SET state = 3, ready = 0, fence = job.fence + 1, worker = $5, turn = $6,
    due_at = CASE
        WHEN job.expires_at < CAST($4 AS bigint) AND job.attempts = 0 AND job.gate IS NULL THEN job.expires_at
        ELSE CAST($4 AS bigint)
    END
FROM next WHERE job.position = next.position
RETURNING job.position, job.id, job.task, job.tenant, job.priority, job.enqueued_at, job.fence, job.attempts, job.failures, job.losses,
    job.lane_id,
    (SELECT c.payload FROM penstock.job_content c WHERE c.position = job.position),
    (SELECT c.options FROM penstock.job_content c WHERE c.position = job.position),
    job.due_at, job.rank

-- :taken_before
-- What an earlier run of the same turn took: $1 are positions and fences. If that run was rolled back, somebody else may
-- have taken them since, with the same fences but in another turn.
SELECT j.position, j.id, j.task, j.tenant, j.priority, j.enqueued_at, j.fence, j.attempts, j.failures, j.losses,
    j.lane_id, c.payload, c.options, j.due_at
FROM penstock.job j
JOIN penstock.job_content c ON c.position = j.position
JOIN jsonb_array_elements(CAST($1 AS jsonb)) AS d (value) ON j.position = CAST(d.value ->> 0 AS bigint) -- [postgres]
JOIN json_each($1) AS d ON j.position = d.value ->> 0 -- [sqlite]
    AND j.fence = CAST(d.value ->> 1 AS int)
WHERE j.state = 3 AND j.turn = $2 AND j.due_at > CAST($3 AS bigint)
    AND (j.expires_at IS NULL OR j.expires_at > CAST($3 AS bigint) OR j.attempts > 0)

-- :park
-- Until its breaker may let it pass, or it expires.
UPDATE penstock.job SET state = 2, ready = 0, worker = '',
    due_at = CASE WHEN expires_at < CAST($2 AS bigint) AND attempts = 0 THEN expires_at ELSE CAST($2 AS bigint) END
WHERE position = $1

-- :commit_strictly
-- On a strict queue a commit is not told before it can be read from the standbys too.
SELECT set_config('synchronous_commit', 'remote_apply', true) -- [postgres]
SELECT 1 -- [sqlite]

-- Asked for by somebody.

-- :finished_unique
-- The queue of the first of these jobs that is finished and had a unique key.
SELECT queue_id FROM penstock.job
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]
WHERE id IN (SELECT value FROM json_each($1)) -- [sqlite]
    AND unique_key IS NOT NULL AND finished_at IS NOT NULL
LIMIT 1
