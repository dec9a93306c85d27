-- :find
SELECT * FROM penstock.queue WHERE arn = $1

-- :exists
SELECT 1 FROM penstock.queue WHERE id = $1

-- :list
SELECT * FROM penstock.queue
 WHERE region = $1 AND account = $2 AND name > $3 AND name >= $4 AND starts_with(name, $4)
 ORDER BY name LIMIT $5

-- :places
-- Each is found from the one before by a step in the index: their queues are not walked over.
WITH RECURSIVE place AS (
    (SELECT 1 AS number, region, account FROM penstock.queue
      WHERE (region, account) > ($1, $2) ORDER BY region, account LIMIT 1)
    UNION ALL
    SELECT place.number + 1, following.* FROM place, LATERAL (
        SELECT q.region, q.account FROM penstock.queue q
         WHERE (q.region, q.account) > (place.region, place.account) ORDER BY q.region, q.account LIMIT 1) following
     WHERE place.number < $3)
SELECT region, account FROM place ORDER BY number

-- :sources
SELECT * FROM penstock.queue WHERE dead_letter_arn = $1 AND name > $2 ORDER BY name LIMIT $3

-- :take_turns
-- Queues are made and deleted by one node after the other.
SELECT pg_advisory_xact_lock(2, 0)

-- :deleted_ago
SELECT penstock.now_ms($1) - deleted_at FROM penstock.deleted_queue WHERE arn = $2

-- :free_name
DELETE FROM penstock.deleted_queue WHERE arn = $1

-- :create
INSERT INTO penstock.queue
       (region, account, name, arn, fifo, attributes, tags, retention_ms, dead_letter_arn, created_at, modified_at)
SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, n.now, n.now FROM (SELECT penstock.now_ms($1) AS now) n
RETURNING *

-- :save
UPDATE penstock.queue
   SET attributes = coalesce($4, attributes), tags = coalesce($5, tags),
       retention_ms = CASE WHEN $4 IS NULL THEN retention_ms ELSE $6 END,
       dead_letter_arn = CASE WHEN $4 IS NULL THEN dead_letter_arn ELSE $7 END,
       modified_at = penstock.now_ms($1), revision = revision + 1
 WHERE id = $2 AND revision = $3
RETURNING *

-- :delete
WITH gone AS (DELETE FROM penstock.queue WHERE id = $2 RETURNING arn, partition, fifo),
retired AS (INSERT INTO penstock.retired_partition (partition, fifo) SELECT partition, fifo FROM gone),
tasks AS (DELETE FROM penstock.move_task WHERE source_id = $2),
taken AS (
    INSERT INTO penstock.deleted_queue (arn, deleted_at) SELECT arn, penstock.now_ms($1) FROM gone
    ON CONFLICT (arn) DO UPDATE SET deleted_at = EXCLUDED.deleted_at)
SELECT arn FROM gone

-- :lock
SELECT partition, fifo, penstock.now_ms($1) - purged_at AS purged_ago FROM penstock.queue WHERE id = $2 FOR UPDATE

-- :purge
UPDATE penstock.queue SET partition = nextval('penstock.partition'), purged_at = penstock.now_ms($1) WHERE id = $2

-- :retire
INSERT INTO penstock.retired_partition (partition, fifo) VALUES ($1, $2)

-- :tell
SELECT pg_notify('penstock_queue', $1)
