-- Unique keys, lanes and the breakers of concurrency keys are of one tenant each, unless the queue shares a key: `shared` is 1
-- then, and `tenant` is empty. The breaker of a whole queue is shared, with an empty key. SQLite does the
-- same.
LOCK TABLE penstock.job, penstock.job_lane, penstock.job_breaker IN ACCESS EXCLUSIVE MODE;

DROP INDEX penstock.job_unique;
CREATE UNIQUE INDEX job_unique ON penstock.job (queue_id, tenant, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;

-- Every lane is split: each tenant that has unfinished jobs in it gets one. Numbers are never used again, so a finished
-- job finds its old lane gone, and makes one of its own when it comes back.
ALTER TABLE penstock.job_lane
    DROP CONSTRAINT job_lane_queue_id_key_ordered_key,
    ADD COLUMN shared smallint NOT NULL DEFAULT 0,
    ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN split_from bigint;
INSERT INTO penstock.job_lane (queue_id, tenant, key, ordered, width, occupied, jobs, split_from)
SELECT l.queue_id, j.tenant, l.key, l.ordered, l.width, sum(j.in_lane), count(*), l.id
FROM penstock.job_lane AS l INNER JOIN penstock.job AS j ON j.lane_id = l.id AND j.finished_at IS NULL
GROUP BY l.id, j.tenant;
UPDATE penstock.job AS j SET lane_id = l.id
FROM penstock.job_lane AS l
WHERE l.split_from = j.lane_id AND l.tenant = j.tenant AND j.finished_at IS NULL;
DELETE FROM penstock.job_lane WHERE split_from IS NULL;
ALTER TABLE penstock.job_lane
    DROP COLUMN split_from,
    ALTER COLUMN shared DROP DEFAULT,
    ALTER COLUMN tenant DROP DEFAULT,
    ADD UNIQUE (queue_id, shared, tenant, key, ordered);

-- Places that jobs of other tenants had are free now: they go to whoever is next.
UPDATE penstock.job AS j SET in_lane = 1, ready = CASE WHEN j.state = 2 THEN 1 ELSE 0 END
FROM (
    SELECT w.position, l.width - l.occupied AS free, row_number() OVER (
        PARTITION BY l.id ORDER BY CASE WHEN l.ordered = 1 THEN 0 ELSE w.priority END DESC, w.position
    ) AS place
    FROM penstock.job_lane AS l INNER JOIN penstock.job AS w ON w.lane_id = l.id
    WHERE w.in_lane = 0 AND w.finished_at IS NULL AND (l.ordered = 1 OR (w.state = 2 AND w.ready = 0))
) AS next
WHERE j.position = next.position AND next.place <= next.free;
UPDATE penstock.job_lane AS l SET occupied = (
    SELECT count(*) FROM penstock.job AS j WHERE j.lane_id = l.id AND j.in_lane = 1 AND j.finished_at IS NULL
);

ALTER TABLE penstock.job_breaker
    DROP CONSTRAINT job_breaker_pkey,
    ADD COLUMN shared smallint NOT NULL DEFAULT 1,
    ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT '';
INSERT INTO penstock.job_breaker (queue_id, shared, tenant, key, failures, opened_at, retry_at, probes)
SELECT b.queue_id, 0, l.tenant, b.key, b.failures, b.opened_at, b.retry_at, b.probes
FROM penstock.job_breaker AS b
INNER JOIN penstock.job_lane AS l ON l.queue_id = b.queue_id AND l.key = b.key AND l.ordered = 0;
DELETE FROM penstock.job_breaker WHERE shared = 1 AND key <> '';
DROP INDEX penstock.job_breaker_closed;
ALTER TABLE penstock.job_breaker
    ALTER COLUMN shared DROP DEFAULT,
    ALTER COLUMN tenant DROP DEFAULT,
    ADD PRIMARY KEY (queue_id, shared, tenant, key);
CREATE INDEX job_breaker_closed ON penstock.job_breaker (queue_id, shared, tenant, key) WHERE failures = 0 AND retry_at IS NULL;
