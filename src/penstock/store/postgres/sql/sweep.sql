-- :retired
SELECT partition, fifo, retired_at < clock_timestamp() - make_interval(secs => $1) AS quiet
  FROM penstock.retired_partition ORDER BY retired_at LIMIT $2

-- :partition
SELECT penstock.sweep_partition($1, $2, $3)

-- :forget_partition
DELETE FROM penstock.retired_partition WHERE partition = $1

-- :queues
SELECT id, retention_ms FROM penstock.queue WHERE id > $1 ORDER BY id LIMIT $2

-- :expired
SELECT * FROM penstock.sweep_expired($1, $2, $3)

-- :append_outcomes
-- Here and below, now is asked for once: compared to a clock that moves, every row would be looked at, due or not.
WITH gone AS (
    DELETE FROM penstock.append_outcome WHERE key = ANY (ARRAY(
        SELECT key FROM penstock.append_outcome WHERE expires_at <= (SELECT penstock.now_ms($1)) AND expires_at >= $2
         ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING expires_at)
SELECT count(*) AS removed, max(expires_at) AS last FROM gone

-- :lease_outcomes
WITH gone AS (
    DELETE FROM penstock.lease_outcome WHERE key = ANY (ARRAY(
        SELECT key FROM penstock.lease_outcome WHERE expires_at <= (SELECT penstock.now_ms($1)) AND expires_at >= $2
         ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING expires_at)
SELECT count(*) AS removed, max(expires_at) AS last FROM gone

-- :work_outcomes
WITH gone AS (
    DELETE FROM penstock.work_outcome WHERE key = ANY (ARRAY(
        SELECT key FROM penstock.work_outcome WHERE expires_at <= (SELECT penstock.now_ms($1)) AND expires_at >= $2
         ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING expires_at)
SELECT count(*) AS removed, max(expires_at) AS last FROM gone

-- :deduplication
WITH gone AS (
    DELETE FROM penstock.deduplication d USING (
        SELECT partition, scope, deduplication_id FROM penstock.deduplication
         WHERE expires_at <= (SELECT penstock.now_ms($1)) AND expires_at >= $2
         ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED) o
     WHERE d.partition = o.partition AND d.scope = o.scope AND d.deduplication_id = o.deduplication_id
    RETURNING d.expires_at)
SELECT count(*) AS removed, max(expires_at) AS last FROM gone

-- :names
WITH gone AS (
    DELETE FROM penstock.deleted_queue WHERE arn = ANY (ARRAY(
        SELECT arn FROM penstock.deleted_queue WHERE deleted_at <= (SELECT penstock.now_ms($1)) - $2::bigint
         LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING 1)
SELECT count(*) FROM gone

-- :tasks
WITH gone AS (
    DELETE FROM penstock.move_task WHERE number = ANY (ARRAY(
        SELECT t.number FROM (
            SELECT number, status, row_number() OVER (PARTITION BY source_id ORDER BY number DESC) AS rank
              FROM penstock.move_task) t
         WHERE t.rank > $1 AND t.status <> 'RUNNING' LIMIT $2)) RETURNING 1)
SELECT count(*) FROM gone
