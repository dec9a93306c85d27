-- Staged jobs: put aside by users' transactions, enqueued by nodes.

-- :staged_queues
-- Queues that have staged jobs, in the order of their names beyond $1, and when the first of these may be tried. From name to name by the
-- index, however many rows are in between.
WITH RECURSIVE line (queue, place) AS (
    (SELECT s.queue, 1 FROM penstock.staged_job s WHERE s.next_at IS NOT NULL AND s.queue > $1 ORDER BY s.queue LIMIT 1)
    UNION ALL
    SELECT n.queue, line.place + 1 FROM line CROSS JOIN LATERAL (
        SELECT s.queue FROM penstock.staged_job s WHERE s.next_at IS NOT NULL AND s.queue > line.queue ORDER BY s.queue LIMIT 1
    ) n WHERE line.place < $2::int
)
SELECT line.queue, (
    SELECT s.next_at FROM penstock.staged_job s WHERE s.queue = line.queue AND s.next_at IS NOT NULL
    ORDER BY s.next_at, s.position LIMIT 1
) FROM line

-- :staged_turn
-- One node at a time takes jobs of a queue, or those of a group would lose their order.
SELECT pg_try_advisory_xact_lock(1885695603, hashtext($1))

-- :staged_rows
-- What may be tried now. A job of a group waits for those before it that were put off; so, in this order, no group has gaps.
SELECT s.position, octet_length(s.request) FROM penstock.staged_job s
WHERE s.queue = $1 AND s.next_at <= $2
    AND (s.line IS NULL OR NOT EXISTS (
        SELECT FROM penstock.staged_job w
        WHERE w.queue = s.queue AND w.line = s.line AND w.position < s.position AND w.next_at > s.next_at
    ))
ORDER BY s.next_at, s.position LIMIT $3
FOR UPDATE SKIP LOCKED

-- :staged_contents
-- And for how long each has waited until $2, or until now where a test has set its clock ahead.
SELECT position, id, request, greatest(least($2, penstock.now_ms(NULL)) - staged_at, 0) FROM penstock.staged_job
WHERE position = ANY ($1::bigint[]) ORDER BY next_at, position

-- :staged_done
DELETE FROM penstock.staged_job WHERE position = ANY ($1::bigint[])

-- :staged_refused
UPDATE penstock.staged_job SET next_at = NULL, problem = $2, detail = $3, refused_at = $4, tries = tries + 1 WHERE position = $1

-- :staged_put_off
UPDATE penstock.staged_job SET next_at = $2, problem = $3, detail = $4, tries = tries + 1 WHERE position = $1

-- :staged_noted
-- Why a queue takes nothing now, once for each row.
UPDATE penstock.staged_job SET problem = $2, detail = $3 WHERE position = ANY ($1::bigint[]) AND problem IS DISTINCT FROM $2

-- :staged_queue
SELECT queue FROM penstock.staged_job WHERE id = $1 AND next_at IS NOT NULL LIMIT 1

-- :staged_counts
-- Up to $1 of each: nobody needs to know how many more there are.
SELECT
    (SELECT count(*) FROM (SELECT FROM penstock.staged_job WHERE next_at IS NOT NULL LIMIT $1) w),
    (SELECT count(*) FROM (SELECT FROM penstock.staged_job WHERE next_at IS NULL LIMIT $1) r)
