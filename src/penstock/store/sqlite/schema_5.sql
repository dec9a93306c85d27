-- Unique keys, lanes and the breakers of concurrency keys are of one tenant each, unless the queue shares a key: `shared` is 1
-- then, and `tenant` is empty. The breaker of a whole queue is shared, with an empty key. PostgreSQL does
-- the same.
DROP INDEX job_unique;
CREATE UNIQUE INDEX job_unique ON job (queue_id, tenant, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;

-- Every lane is split: each tenant that has unfinished jobs in it gets one. Numbers are never used again, so a finished
-- job finds its old lane gone, and makes one of its own when it comes back.
CREATE TABLE job_lane_split (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id INTEGER NOT NULL,
    shared INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    ordered INTEGER NOT NULL,
    width INTEGER NOT NULL,
    occupied INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    UNIQUE (queue_id, shared, tenant, key, ordered)
) STRICT;
INSERT INTO sqlite_sequence (name, seq) SELECT 'job_lane_split', seq FROM sqlite_sequence WHERE name = 'job_lane';
INSERT INTO job_lane_split (queue_id, shared, tenant, key, ordered, width, occupied, jobs)
SELECT l.queue_id, 0, j.tenant, l.key, l.ordered, l.width, sum(j.in_lane), count(*)
FROM job_lane AS l INNER JOIN job AS j ON j.lane_id = l.id AND j.finished_at IS NULL
GROUP BY l.id, j.tenant;
UPDATE job SET lane_id = (
    SELECT s.id FROM job_lane AS l INNER JOIN job_lane_split AS s
        ON s.queue_id = l.queue_id AND s.shared = 0 AND s.tenant = job.tenant AND s.key = l.key AND s.ordered = l.ordered
    WHERE l.id = job.lane_id
)
WHERE lane_id IS NOT NULL AND finished_at IS NULL;
DROP TABLE job_lane;
ALTER TABLE job_lane_split RENAME TO job_lane;
CREATE INDEX job_lane_empty ON job_lane (id) WHERE jobs = 0;

-- Places that jobs of other tenants had are free now: they go to whoever is next.
UPDATE job SET in_lane = 1, ready = CASE WHEN state = 2 THEN 1 ELSE 0 END
WHERE position IN (
    SELECT position FROM (
        SELECT j.position, l.width - l.occupied AS free, row_number() OVER (
            PARTITION BY l.id ORDER BY CASE WHEN l.ordered = 1 THEN 0 ELSE j.priority END DESC, j.position
        ) AS place
        FROM job_lane AS l INNER JOIN job AS j ON j.lane_id = l.id
        WHERE j.in_lane = 0 AND j.finished_at IS NULL AND (l.ordered = 1 OR (j.state = 2 AND j.ready = 0))
    )
    WHERE place <= free
);
UPDATE job_lane SET occupied = (
    SELECT count(*) FROM job AS j WHERE j.lane_id = job_lane.id AND j.in_lane = 1 AND j.finished_at IS NULL
);

CREATE TABLE job_breaker_split (
    queue_id INTEGER NOT NULL,
    shared INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    failures INTEGER NOT NULL,
    opened_at INTEGER,
    retry_at INTEGER,
    probes INTEGER NOT NULL,
    PRIMARY KEY (queue_id, shared, tenant, key)
) STRICT, WITHOUT ROWID;
INSERT INTO job_breaker_split (queue_id, shared, tenant, key, failures, opened_at, retry_at, probes)
SELECT queue_id, 1, '', key, failures, opened_at, retry_at, probes FROM job_breaker WHERE key = ''
UNION ALL
SELECT b.queue_id, 0, l.tenant, b.key, b.failures, b.opened_at, b.retry_at, b.probes
FROM job_breaker AS b INNER JOIN job_lane AS l ON l.queue_id = b.queue_id AND l.key = b.key AND l.ordered = 0;
DROP TABLE job_breaker;
ALTER TABLE job_breaker_split RENAME TO job_breaker;
CREATE INDEX job_breaker_closed ON job_breaker (queue_id, shared, tenant, key) WHERE failures = 0 AND retry_at IS NULL;
