-- Gates: where jobs with a start rate wait for their turn. Who has locked a gate is alone with those who wait there, but for
-- those who come or are cancelled.

-- :arm_gate
-- Somebody waits at the gate.
INSERT INTO penstock.job_gate AS g (queue_id, gate, next_at) VALUES ($1, $2, 0)
ON CONFLICT (queue_id, gate) DO UPDATE SET next_at = coalesce(g.next_at, 0)

-- :refund_gate
-- $4 offers that end at $3 did not become starts. If others took tokens since, their time has passed.
UPDATE penstock.job_gate
SET full_at_us = full_at_us - CAST($4 AS bigint) * charged_us, next_at = CASE WHEN next_at IS NOT NULL THEN 0 END
WHERE queue_id = $1 AND gate = $2 AND charged_until = $3

-- :prolong_charge
-- Offers that were to end at $3 were made again, and end at $4.
UPDATE penstock.job_gate SET charged_until = $4 WHERE queue_id = $1 AND gate = $2 AND charged_until = $3

-- :lock_gates
SELECT gate, interval_us, burst, full_at_us FROM penstock.job_gate
WHERE queue_id = $1
    AND gate = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($2 AS jsonb)))) -- [postgres]
    AND gate IN (SELECT value FROM json_each($2)) -- [sqlite]
ORDER BY gate
FOR UPDATE SKIP LOCKED -- [postgres]

-- :waits_at_gate
-- What one of those who wait at a gate was enqueued with.
SELECT c.options FROM penstock.job AS j JOIN penstock.job_content AS c ON c.position = j.position
WHERE j.queue_id = $1 AND j.gate = $2 AND j.ready = 2
ORDER BY j.task, j.rank, j.position LIMIT 1

-- :pass_gate
-- The first $3 of those who wait and have not expired at $5, of the tasks $4 if there are any in it, may be offered.
WITH RECURSIVE kinds (task, number) AS (
    SELECT (SELECT min(task) FROM penstock.job WHERE queue_id = $1 AND gate = $2 AND ready = 2), 1
    UNION ALL
    SELECT (
        SELECT min(task) FROM penstock.job WHERE queue_id = $1 AND gate = $2 AND ready = 2 AND task > kinds.task
    ), number + 1
    FROM kinds WHERE kinds.task IS NOT NULL AND number < 1000
),
next AS MATERIALIZED (
    SELECT found.position FROM kinds
    CROSS JOIN LATERAL ( -- [postgres]
        SELECT position, rank FROM penstock.job WHERE queue_id = $1 AND gate = $2 AND ready = 2 AND task = kinds.task -- [postgres]
            AND (due_at IS NULL OR due_at > CAST($5 AS bigint)) -- [postgres]
        ORDER BY rank, position LIMIT $3 -- [postgres]
        FOR UPDATE SKIP LOCKED -- [postgres]
    ) AS found -- [postgres]
    CROSS JOIN job AS found ON found.position IN ( -- [sqlite]
        SELECT position FROM job WHERE queue_id = $1 AND gate = $2 AND ready = 2 AND task = kinds.task -- [sqlite]
            AND (due_at IS NULL OR due_at > $5) -- [sqlite]
        ORDER BY rank, position LIMIT $3 -- [sqlite]
    ) -- [sqlite]
    WHERE kinds.task IS NOT NULL AND (
        CAST($4 AS text) = '[]'
        OR kinds.task = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($4 AS jsonb)))) -- [postgres]
        OR kinds.task IN (SELECT value FROM json_each($4)) -- [sqlite]
    )
    ORDER BY found.rank, found.position LIMIT $3
)
UPDATE penstock.job SET ready = 1
WHERE position = ANY (ARRAY(SELECT position FROM next)) -- [postgres]
WHERE position IN (SELECT position FROM next) -- [sqlite]
RETURNING position

-- :hold_at_gate
-- Those who might have been offered, and were not: they wait again.
UPDATE penstock.job SET ready = 2
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
    AND ready = 1

-- :save_gate
UPDATE penstock.job_gate SET interval_us = $3, burst = $4, full_at_us = $5,
    charged_until = coalesce(CAST($6 AS bigint), charged_until), charged_us = coalesce(CAST($7 AS bigint), charged_us),
    next_at = CASE
        WHEN EXISTS (SELECT 1 FROM penstock.job AS j WHERE j.queue_id = $1 AND j.gate = $2 AND j.ready = 2)
        THEN CAST($8 AS bigint)
    END
WHERE queue_id = $1 AND gate = $2

-- :rearm_gates
-- The rates of a queue have changed.
UPDATE penstock.job_gate SET next_at = 0 WHERE queue_id = $1 AND next_at > 0

-- :delete_idle_gates
DELETE FROM penstock.job_gate WHERE (queue_id, gate) IN (
    SELECT queue_id, gate FROM penstock.job_gate WHERE next_at IS NULL AND full_at_us <= $1 ORDER BY full_at_us LIMIT $2
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :delete_queue_gates
DELETE FROM penstock.job_gate WHERE queue_id = $1
