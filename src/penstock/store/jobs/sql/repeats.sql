-- What is remembered of calls, so that a repeat has no second effect.

-- :spent
-- Which of these keys are remembered.
SELECT key, digest FROM penstock.job_spent
WHERE key = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) AND expires_at > $2 -- [postgres]
WHERE key IN (SELECT value FROM json_each($1)) AND expires_at > $2 -- [sqlite]

-- :note_spent
INSERT INTO penstock.job_spent (key, digest, expires_at) VALUES ($1, $2, $3)
ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, expires_at = excluded.expires_at

-- :note_spent_operations
-- Those of a queue that were started since $2, as the queue goes.
INSERT INTO penstock.job_spent (key, expires_at)
SELECT id, CAST($3 AS bigint) FROM penstock.job_operation WHERE queue_id = $1 AND started_at > CAST($2 AS bigint)
ON CONFLICT (key) DO NOTHING

-- :delete_spent
DELETE FROM penstock.job_spent WHERE key IN (
    SELECT key FROM penstock.job_spent WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :jobs_with_ids
-- What the jobs are that have these ids.
SELECT j.id, q.name, j.task, j.tenant, c.payload, j.enqueued_at
FROM penstock.job AS j
INNER JOIN penstock.job_content AS c ON c.position = j.position
INNER JOIN penstock.job_queue AS q ON q.id = j.queue_id
WHERE j.id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]
WHERE j.id IN (SELECT value FROM json_each($1)) -- [sqlite]

-- :open_offers
-- The offers of one turn that nobody has accepted. They are found among those of the queue by their state: the index by
-- due instant holds all that is scheduled, too, so it is kept out.
SELECT position, gate, due_at FROM penstock.job
WHERE queue_id = $1 AND state = 3 AND turn = $2 AND due_at + 0 > CAST($3 AS bigint)
    AND (expires_at IS NULL OR expires_at > CAST($3 AS bigint) OR attempts > 0)
ORDER BY position LIMIT $4
FOR UPDATE -- [postgres]

-- :offer_again
UPDATE penstock.job SET fence = fence + 1,
    due_at = CASE
        WHEN expires_at < CAST($2 AS bigint) AND attempts = 0 AND gate IS NULL THEN expires_at
        ELSE CAST($2 AS bigint)
    END
WHERE position IN (SELECT value FROM json_each($1)) -- [sqlite]
WHERE position = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]
RETURNING position, id, task, tenant, priority, enqueued_at, fence, attempts, failures, losses, lane_id,
    (SELECT c.payload FROM penstock.job_content c WHERE c.position = job.position),
    (SELECT c.options FROM penstock.job_content c WHERE c.position = job.position),
    due_at, rank
