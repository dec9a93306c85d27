-- Workers, as nodes tell of those that are connected to them. Lists of names are JSON arrays.

-- :save_worker
INSERT INTO penstock.job_worker (name, id, kind, queues, tasks, credit, running, since, seen_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name, id) DO UPDATE SET credit = excluded.credit, running = excluded.running, seen_at = excluded.seen_at

-- :remove_worker
DELETE FROM penstock.job_worker WHERE name = $1 AND id = $2

-- :remove_stale_workers
DELETE FROM penstock.job_worker WHERE (name, id) IN (
    SELECT name, id FROM penstock.job_worker WHERE seen_at <= $1 ORDER BY seen_at LIMIT $2
    FOR UPDATE SKIP LOCKED -- [postgres]
)
RETURNING 1

-- :workers_after
SELECT name, id, kind, queues, tasks, credit, running, since, seen_at FROM penstock.job_worker
WHERE (name, id) > ($1, $2) AND seen_at > $3
    AND (CAST($4 AS text) IS NULL OR $4 IN (SELECT value FROM json_each(queues))) -- [sqlite]
    AND (CAST($4 AS text) IS NULL OR CAST(queues AS jsonb) ? CAST($4 AS text)) -- [postgres]
ORDER BY name, id LIMIT $5
