-- Events of jobs, as they are published and read.

-- :job_to_publish
SELECT j.position, j.id, j.state, j.fence, j.attempts, j.due_at, j.times_out_at, j.events, q.settings
FROM penstock.job AS j
INNER JOIN penstock.job_queue AS q ON q.id = j.queue_id
WHERE j.id = $1
FOR UPDATE OF j -- [postgres]

-- :event_by_id
SELECT seq, attempt, kind, data, at FROM penstock.job_event WHERE position = $1 AND event_id = $2

-- :known_events
-- Which of these events there are; $1 are positions and ids.
SELECT e.position, e.event_id, e.attempt
FROM jsonb_array_elements(CAST($1 AS jsonb)) AS d (value) -- [postgres]
FROM json_each($1) AS d -- [sqlite]
CROSS JOIN penstock.job_event AS e
WHERE e.position = CAST(d.value ->> 0 AS bigint) AND e.event_id = d.value ->> 1

-- :save_events
UPDATE penstock.job SET events = $2 WHERE position = $1

-- :job_with_events
SELECT position, state, events FROM penstock.job WHERE id = $1

-- :events_after
SELECT seq, attempt, kind, data, at FROM penstock.job_event
WHERE position = $1 AND seq > CAST($2 AS bigint) AND seq <= CAST($3 AS bigint)
    AND (CAST($5 AS text) IS NULL OR kind IN (SELECT value FROM json_each($5))) -- [sqlite]
    AND (CAST($5 AS text) IS NULL OR kind = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($5 AS jsonb))))) -- [postgres]
    AND at >= $6 AND at < $7
ORDER BY seq LIMIT $4

-- :event_sizes
SELECT seq, octet_length(data) FROM penstock.job_event
WHERE position = $1 AND seq > CAST($2 AS bigint) AND seq <= CAST($3 AS bigint)
    AND (CAST($5 AS text) IS NULL OR kind IN (SELECT value FROM json_each($5))) -- [sqlite]
    AND (CAST($5 AS text) IS NULL OR kind = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($5 AS jsonb))))) -- [postgres]
    AND at >= $6 AND at < $7
ORDER BY seq LIMIT $4
