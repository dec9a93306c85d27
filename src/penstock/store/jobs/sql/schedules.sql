-- Schedules.

-- :schedule_named
SELECT spec, next_at, last_at, last_job_id, revision FROM penstock.job_schedule WHERE name = $1

-- :schedule_to_save
SELECT spec, next_at, last_at, last_job_id, revision FROM penstock.job_schedule WHERE name = $1
FOR UPDATE -- [postgres]

-- :schedules_after
SELECT spec, next_at, last_at, last_job_id, revision FROM penstock.job_schedule WHERE name > $1 ORDER BY name LIMIT $2

-- :save_schedule
INSERT INTO penstock.job_schedule AS s (name, queue_id, spec, paused, next_at, revision) VALUES ($1, $2, $3, $4, $5, 1)
ON CONFLICT (name) DO UPDATE
SET queue_id = excluded.queue_id, spec = excluded.spec, paused = excluded.paused, next_at = excluded.next_at,
    revision = s.revision + 1
RETURNING spec, next_at, last_at, last_job_id, revision

-- :delete_schedule
DELETE FROM penstock.job_schedule WHERE name = $1 RETURNING 1

-- :due_schedules
SELECT s.spec, s.next_at, s.last_at, s.last_job_id, s.revision,
    q.id, q.name, q.settings, q.paused, q.revision, q.created_at
FROM penstock.job_schedule AS s
INNER JOIN penstock.job_queue AS q ON q.id = s.queue_id
WHERE s.next_at <= $1 ORDER BY s.next_at LIMIT $2
FOR UPDATE OF s SKIP LOCKED -- [postgres]

-- :schedule_fired
UPDATE penstock.job_schedule SET next_at = $2, last_at = $3, last_job_id = $4 WHERE name = $1

-- :plan_schedule
UPDATE penstock.job_schedule SET next_at = $2 WHERE name = $1 AND next_at = $3

-- :next_schedule
SELECT min(next_at) FROM penstock.job_schedule WHERE next_at IS NOT NULL
