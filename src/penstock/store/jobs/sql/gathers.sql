-- Gathers. Their rows are locked after lanes and jobs, in the order of their ids, and mostly at the end of a transaction.

-- :take_turns_filling
-- Who opens or fills one gather goes after another. Not by a lock of its row: that comes after those of lanes and jobs.
SELECT pg_advisory_xact_lock(hashtextextended(CAST($1 AS text), 0)) -- [postgres]
SELECT $1 -- [sqlite]

-- :insert_gather
INSERT INTO penstock.job_gather
    (id, tenant, state, on_error, queue_id, queue, task, draft, fingerprint, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- :gathers_among
SELECT id FROM penstock.job_gather
WHERE id IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]

-- :gather_by_id
SELECT id, tenant, state, on_error, total, succeeded, failed, sealed, queue, task, continuation, created_at, expires_at,
    ended_at, fingerprint
FROM penstock.job_gather WHERE id = $1

-- :change_gather
UPDATE penstock.job_gather SET total = total + CAST($2 AS int), succeeded = succeeded + CAST($3 AS int),
    failed = failed + CAST($4 AS int),
    sealed = CASE WHEN CAST($5 AS int) = 1 THEN 1 ELSE sealed END,
    state = CASE WHEN CAST($5 AS int) = 1 AND state = 1 THEN 2 ELSE state END,
    kept_until = CASE WHEN CAST($6 AS int) = 1 THEN CAST($7 AS bigint) ELSE kept_until END
WHERE id = $1
RETURNING state, on_error, total, succeeded, failed, expires_at

-- :continuation_of
SELECT queue_id, draft FROM penstock.job_gather WHERE id = $1

-- :wait_briefly
-- From here on locks are taken out of order: rather begin again than wait for somebody who waits for this transaction.
SELECT set_config('lock_timeout', '200ms', true) -- [postgres]
SELECT 1 -- [sqlite]

-- :continue_gather
UPDATE penstock.job_gather SET state = 3, continuation = $2, ended_at = $3 WHERE id = $1

-- :begin_pending
-- Its only member is about to be enqueued. It may have been cancelled before.
UPDATE penstock.job_gather SET total = 1, sealed = 1, state = CASE WHEN state = 6 THEN 2 ELSE state END
WHERE id = $1
RETURNING 1

-- :cancel_pending
UPDATE penstock.job_gather SET state = 5, ended_at = $2, kept_until = $3 WHERE id = $1 AND state = 6
RETURNING 1

-- :cancel_gather
UPDATE penstock.job_gather SET state = 5, ended_at = $2, kept_until = $3
WHERE id = $1 AND ended_at IS NULL AND expires_at > $2

-- Members.

-- :insert_member
INSERT INTO penstock.job_gather_member (gather_id, place, job_id) VALUES ($1, $2, $3)

-- :members_between
SELECT m.place, m.job_id, j.state, j.queue_id, j.task, c.payload
FROM penstock.job_gather_member AS m
LEFT JOIN penstock.job AS j ON j.id = m.job_id
LEFT JOIN penstock.job_content AS c ON c.position = j.position
WHERE m.gather_id = $1 AND m.place >= $2 AND m.place <= $3

-- :member_ids
SELECT place, job_id FROM penstock.job_gather_member WHERE gather_id = $1 AND place >= $2 AND place <= $3

-- :last_place
SELECT coalesce(max(place), -1) FROM penstock.job_gather_member WHERE gather_id = $1

-- :jobs_among
SELECT id FROM penstock.job
WHERE id IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]

-- :members_after
SELECT m.place, m.job_id, coalesce(j.state, m.outcome), j.position, q.name
FROM penstock.job_gather_member AS m
LEFT JOIN penstock.job AS j ON j.id = m.job_id
LEFT JOIN penstock.job_queue AS q ON q.id = j.queue_id
WHERE m.gather_id = $1 AND m.place > $2 ORDER BY m.place LIMIT $3

-- :results_at
SELECT position, result, failure FROM penstock.job_content
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]

-- :note_outcomes
UPDATE penstock.job_gather_member SET outcome = $2
WHERE job_id IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE job_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]

-- Upkeep.

-- :expire_gathers
UPDATE penstock.job_gather SET state = 4, ended_at = expires_at, kept_until = $2
WHERE id IN (
    SELECT id FROM penstock.job_gather WHERE ended_at IS NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $3
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :old_gathers
SELECT id FROM penstock.job_gather WHERE kept_until <= $1 ORDER BY kept_until LIMIT $2
FOR UPDATE SKIP LOCKED -- [postgres]

-- :remove_some_members
DELETE FROM penstock.job_gather_member WHERE (gather_id, place) IN (
    SELECT m.gather_id, m.place FROM penstock.job_gather_member AS m
    WHERE m.gather_id IN (SELECT value FROM json_each($1)) -- [sqlite]
    WHERE m.gather_id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]
    LIMIT $2
)
RETURNING 1

-- :remove_empty_gathers
DELETE FROM penstock.job_gather
WHERE id IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]
    AND NOT EXISTS (SELECT 1 FROM penstock.job_gather_member AS m WHERE m.gather_id = job_gather.id)
RETURNING 1
