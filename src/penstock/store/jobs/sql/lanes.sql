-- Lanes. They are locked in the order of their names, so that two transactions never wait for each other.

-- :open_lanes
-- A job's own width counts while no unfinished job is in the lane.
INSERT INTO penstock.job_lane AS l (queue_id, shared, tenant, key, ordered, width, occupied, jobs)
SELECT CAST($1 AS bigint), CAST(d.value ->> 0 AS smallint), d.value ->> 1, d.value ->> 2, CAST(d.value ->> 3 AS smallint),
    CAST(d.value ->> 4 AS int), 0, 0
FROM jsonb_array_elements(CAST($2 AS jsonb)) WITH ORDINALITY AS d (value, key) -- [postgres]
FROM json_each($2) AS d -- [sqlite]
WHERE true
ORDER BY d.key
ON CONFLICT (queue_id, shared, tenant, key, ordered) DO UPDATE
SET width = CASE WHEN l.jobs = 0 THEN excluded.width ELSE l.width END
RETURNING id, queue_id, shared, tenant, key, ordered, width, occupied, jobs,
    (SELECT q.settings FROM penstock.job_queue AS q WHERE q.id = queue_id)

-- :lanes_of_jobs
-- The names and widths of the lanes of jobs, which are not locked.
SELECT l.shared, l.tenant, l.key, l.ordered, l.width
FROM penstock.job AS j
INNER JOIN penstock.job_lane AS l ON l.id = j.lane_id
WHERE j.id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))) -- [postgres]
WHERE j.id IN (SELECT value FROM json_each($1)) -- [sqlite]

-- :lock_lanes_of_jobs
SELECT l.id, l.queue_id, l.shared, l.tenant, l.key, l.ordered, l.width, l.occupied, l.jobs, q.settings
FROM penstock.job_lane l JOIN penstock.job_queue q ON q.id = l.queue_id
WHERE l.id = ANY (ARRAY(SELECT lane_id FROM penstock.job WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))))) -- [postgres]
WHERE l.id IN (SELECT lane_id FROM job WHERE id IN (SELECT value FROM json_each($1))) -- [sqlite]
ORDER BY l.queue_id, l.shared, l.tenant, l.key, l.ordered
FOR UPDATE OF l -- [postgres]

-- :lock_free_lanes
SELECT l.id, l.queue_id, l.shared, l.tenant, l.key, l.ordered, l.width, l.occupied, l.jobs, q.settings
FROM penstock.job_lane l JOIN penstock.job_queue q ON q.id = l.queue_id
WHERE l.id = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text(CAST($1 AS jsonb)) AS bigint))) -- [postgres]
WHERE l.id IN (SELECT value FROM json_each($1)) -- [sqlite]
ORDER BY l.queue_id, l.shared, l.tenant, l.key, l.ordered
FOR UPDATE OF l SKIP LOCKED -- [postgres]

-- :lock_lanes_by_key
-- Those of concurrency keys in which somebody waits for a place.
SELECT l.id, l.queue_id, l.shared, l.tenant, l.key, l.ordered, l.width, l.occupied, l.jobs, q.settings
FROM penstock.job_lane l JOIN penstock.job_queue q ON q.id = l.queue_id
WHERE l.queue_id = $1 AND l.ordered = 0 AND l.occupied < l.jobs
    AND l.key = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($2 AS jsonb)))) -- [postgres]
    AND l.key IN (SELECT value FROM json_each($2)) -- [sqlite]
ORDER BY l.queue_id, l.shared, l.tenant, l.key, l.ordered LIMIT $3
FOR UPDATE OF l -- [postgres]

-- :save_lane
UPDATE penstock.job_lane SET occupied = $2, jobs = $3 WHERE id = $1

-- :yield_place
-- Who has a place of an ordered lane and is not in flight gives it up if somebody who waits comes before it in line.
UPDATE penstock.job SET in_lane = 0, ready = 0
WHERE lane_id = $1 AND in_lane = 1 AND finished_at IS NULL AND state IN (1, 2, 5)
    AND position > (
        SELECT min(w.position) FROM penstock.job w WHERE w.lane_id = $1 AND w.in_lane = 0 AND w.finished_at IS NULL
    )
RETURNING position

-- :promote_in_order
-- Who goes next: in the order of enqueueing, due or not.
WITH next AS (
    SELECT position FROM penstock.job
    WHERE lane_id = $1 AND in_lane = 0 AND finished_at IS NULL
    ORDER BY position LIMIT $2
    FOR UPDATE -- [postgres]
)
UPDATE penstock.job SET in_lane = 1,
    ready = CASE WHEN job.state <> 2 THEN 0 WHEN job.gate IS NULL THEN 1 ELSE 2 END
FROM next WHERE job.position = next.position
RETURNING job.ready, job.gate

-- :promote_by_urgency
-- Who goes next: the most urgent of those that are due, and not about to be removed.
WITH next AS (
    SELECT position FROM penstock.job
    WHERE lane_id = $1 AND in_lane = 0 AND ready = 0 AND state = 2 AND finished_at IS NULL
    ORDER BY rank, position LIMIT $2
    FOR UPDATE -- [postgres]
)
UPDATE penstock.job SET in_lane = 1, ready = CASE WHEN job.gate IS NULL THEN 1 ELSE 2 END
FROM next WHERE job.position = next.position
RETURNING job.ready, job.gate
