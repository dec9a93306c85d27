-- Upkeep: each function removes at most p_rows rows of what no verb shows any more, and says how many they were.

-- Messages of a purged or deleted queue, and then its groups.
CREATE OR REPLACE FUNCTION penstock.sweep_partition(p_partition int, p_fifo boolean, p_rows int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off
AS $$
DECLARE
    v_positions bigint[];
    v_groups int := 0;
BEGIN
    IF p_fifo THEN
        v_positions := ARRAY(SELECT m.position FROM penstock.fifo_message m WHERE m.partition = p_partition
                              ORDER BY m.position LIMIT p_rows FOR UPDATE SKIP LOCKED);
        DELETE FROM penstock.fifo_message m WHERE m.partition = p_partition AND m.position = ANY (v_positions);
        IF v_positions = '{}' THEN
            DELETE FROM penstock.fifo_group g WHERE g.id = ANY (ARRAY(
                SELECT x.id FROM penstock.fifo_group x WHERE x.partition = p_partition LIMIT p_rows FOR UPDATE SKIP LOCKED));
            GET DIAGNOSTICS v_groups = ROW_COUNT;
        END IF;
    ELSE
        v_positions := ARRAY(SELECT m.position FROM penstock.message m WHERE m.partition = p_partition
                              ORDER BY m.position LIMIT p_rows FOR UPDATE SKIP LOCKED);
        DELETE FROM penstock.message m WHERE m.partition = p_partition AND m.position = ANY (v_positions);
    END IF;
    DELETE FROM penstock.body b WHERE b.position = ANY (v_positions);
    RETURN cardinality(v_positions) + v_groups;
END $$;

-- Expired messages of a queue, whatever their state: the oldest come first by the primary key. Says how many they were,
-- and in how long the next one expires.
CREATE OR REPLACE FUNCTION penstock.sweep_expired(p_pinned bigint, p_queue int, p_rows int, OUT removed int, OUT next_in bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off
AS $$
DECLARE
    v_now bigint := penstock.now_ms(p_pinned);
    v_horizon bigint;
    v_queue penstock.queue;
    v_positions bigint[];
    v_groups bigint[];
BEGIN
    removed := 0;
    SELECT * INTO v_queue FROM penstock.queue q WHERE q.id = p_queue;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_horizon := v_now - v_queue.retention_ms;
    IF v_queue.fifo THEN
        -- The rows of their groups are locked first, and what is to go is read in a new statement.
        v_groups := ARRAY(
            SELECT DISTINCT o.group_id FROM (SELECT m.group_id, m.sent_at FROM penstock.fifo_message m
                                              WHERE m.partition = v_queue.partition ORDER BY m.position LIMIT p_rows) o
             WHERE o.sent_at <= v_horizon);
        v_groups := ARRAY(SELECT g.id FROM penstock.fifo_group g WHERE g.id = ANY (v_groups) FOR UPDATE SKIP LOCKED);
        v_positions := ARRAY(
            SELECT o.position FROM (SELECT m.position, m.group_id, m.sent_at FROM penstock.fifo_message m
                                     WHERE m.partition = v_queue.partition ORDER BY m.position LIMIT p_rows) o
             WHERE o.sent_at <= v_horizon AND o.group_id = ANY (v_groups));
        DELETE FROM penstock.fifo_message m WHERE m.partition = v_queue.partition AND m.position = ANY (v_positions);
        PERFORM penstock.settle(g.id, v_now, v_queue.retention_ms) FROM unnest(v_groups) g(id);
        next_in := (SELECT m.sent_at - v_horizon FROM penstock.fifo_message m
                     WHERE m.partition = v_queue.partition ORDER BY m.position LIMIT 1);
    ELSE
        v_positions := ARRAY(
            SELECT o.position FROM (SELECT m.position, m.sent_at FROM penstock.message m
                                     WHERE m.partition = v_queue.partition ORDER BY m.position LIMIT p_rows) o
             WHERE o.sent_at <= v_horizon);
        v_positions := ARRAY(
            SELECT m.position FROM penstock.message m
             WHERE m.partition = v_queue.partition AND m.position = ANY (v_positions) FOR UPDATE SKIP LOCKED);
        DELETE FROM penstock.message m WHERE m.partition = v_queue.partition AND m.position = ANY (v_positions);
        next_in := (SELECT m.sent_at - v_horizon FROM penstock.message m
                     WHERE m.partition = v_queue.partition ORDER BY m.position LIMIT 1);
    END IF;
    DELETE FROM penstock.body b WHERE b.position = ANY (v_positions);
    removed := cardinality(v_positions);
END $$;

-- Counts of a queue's messages by their state; no row if the queue is gone.
CREATE OR REPLACE FUNCTION penstock.count_messages(p_pinned bigint, p_queue int)
RETURNS TABLE (visible bigint, in_flight bigint, delayed bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_now bigint := penstock.now_ms(p_pinned);
    v_queue penstock.queue;
BEGIN
    SELECT * INTO v_queue FROM penstock.queue q WHERE q.id = p_queue;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF v_queue.fifo THEN
        RETURN QUERY
            SELECT count(*) FILTER (WHERE m.visible_at <= v_now),
                   count(*) FILTER (WHERE m.visible_at > v_now AND m.receipt > 0),
                   count(*) FILTER (WHERE m.visible_at > v_now AND m.receipt = 0)
              FROM penstock.fifo_message m WHERE m.partition = v_queue.partition;
    ELSE
        -- Mostly counted in the index alone.
        RETURN QUERY
            SELECT (SELECT count(*) FROM penstock.message m
                     WHERE m.due_partition = v_queue.partition AND m.returned AND m.visible_at <= v_now)
                   + (SELECT count(*) FROM penstock.message m
                       WHERE m.due_partition = v_queue.partition AND NOT m.returned AND m.visible_at <= v_now),
                   (SELECT count(*) FROM penstock.message m
                     WHERE m.due_partition = v_queue.partition AND m.returned AND m.visible_at > v_now),
                   (SELECT count(*) FROM penstock.message m
                     WHERE m.due_partition = v_queue.partition AND NOT m.returned AND m.visible_at > v_now);
    END IF;
END $$;

-- Scan floors ---------------------------------------------------------------------------------------------------------
-- Rows that are dead, but that somebody's old snapshot keeps, stay in the indexes, and every lease would walk over them.
-- So nodes remember, for each partition, an instant before which nothing visible (no ready group) can be, and begin there.
--
-- It is safe because every write sets visible_at and ready_at to its own now or later, and because a floor is taken in two
-- statements: first one that is below the start of every transaction of ours that is running; then, with a younger
-- snapshot, the least that is there. What the second does not see was written by a transaction that began after the first.

-- Step one: NULL if the sessions that matter cannot all be seen.
CREATE OR REPLACE FUNCTION penstock.floor_horizon() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN coalesce(bool_and(a.state IS NOT NULL AND a.state <> 'disabled'), true)
                THEN least(penstock.now_ms(NULL), floor(extract(epoch FROM min(a.xact_start)) * 1000)::bigint) - 50 END
      FROM pg_stat_activity a
     WHERE a.datname = current_database() AND a.application_name = 'penstock' AND a.backend_type = 'client backend'
$$;

-- Step two. Messages of standard queues have two floors: those never received, and those that came back.
CREATE OR REPLACE FUNCTION penstock.floors(
    p_horizon bigint, p_partitions int[], p_fifo boolean[], p_floors bigint[], p_returned_floors bigint[]
) RETURNS TABLE (floor bigint, returned_floor bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
BEGIN
    RETURN QUERY
        SELECT least(p_horizon, CASE WHEN u.fifo THEN
                   (SELECT g.ready_at FROM penstock.fifo_group g
                     WHERE g.due_partition = u.partition AND g.ready_at >= u.floor AND g.ready_at < p_horizon
                     ORDER BY g.ready_at LIMIT 1)
               ELSE
                   (SELECT m.visible_at FROM penstock.message m
                     WHERE m.due_partition = u.partition AND NOT m.returned
                       AND m.visible_at >= u.floor AND m.visible_at < p_horizon
                     ORDER BY m.visible_at LIMIT 1)
               END),
               least(p_horizon, CASE WHEN NOT u.fifo THEN
                   (SELECT m.visible_at FROM penstock.message m
                     WHERE m.due_partition = u.partition AND m.returned
                       AND m.visible_at >= u.returned_floor AND m.visible_at < p_horizon
                     ORDER BY m.visible_at LIMIT 1)
               END)
          FROM unnest(p_partitions, p_fifo, p_floors, p_returned_floors) WITH ORDINALITY
               u(partition, fifo, floor, returned_floor, number)
         ORDER BY u.number;
END $$;
