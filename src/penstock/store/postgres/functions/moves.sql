-- Message move tasks: one bounded step of one task, progress and pace kept with it.

-- Do a step if it is due and nobody else is doing it. Returns the queues that messages have arrived in, with how many.
CREATE OR REPLACE FUNCTION penstock.advance_move(p_pinned bigint, p_number bigint, p_rows_max int, p_message_ids text[])
RETURNS TABLE (queue_id int, arrived int)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := penstock.now_ms(p_pinned);
    v_task penstock.move_task;
    v_source penstock.queue;
    v_rows int;
    v_destinations int[] := '{}';
    v_failure text;
    v_more boolean := false;
BEGIN
    SELECT * INTO v_task FROM penstock.move_task t
     WHERE t.number = p_number AND t.status = 'RUNNING' AND t.due_at <= v_now FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO v_source FROM penstock.queue q WHERE q.id = v_task.source_id;
    IF NOT FOUND THEN
        DELETE FROM penstock.move_task t WHERE t.number = p_number;
        RETURN;
    END IF;
    v_rows := CASE WHEN v_task.rate IS NULL THEN p_rows_max ELSE least(p_rows_max, greatest(1, v_task.rate / 10)) END;
    IF v_task.destination_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM penstock.queue q WHERE q.id = v_task.destination_id) THEN
        v_failure := 'DestinationDoesNotExist';
    ELSIF v_source.fifo THEN
        SELECT m.destinations, m.failure, m.more INTO v_destinations, v_failure, v_more
          FROM penstock.move_fifo(v_source.partition, v_source.retention_ms, v_task.destination_id, v_task.permitted,
                                  v_now, v_rows, p_message_ids) m;
    ELSE
        SELECT m.destinations, m.failure, m.more INTO v_destinations, v_failure, v_more
          FROM penstock.move(v_source.partition, v_source.retention_ms, v_task.destination_id, v_task.permitted,
                                  v_now, v_rows, p_message_ids) m;
    END IF;
    UPDATE penstock.move_task t
       SET moved = t.moved + cardinality(v_destinations),
           failure = v_failure,
           status = CASE WHEN v_failure IS NOT NULL THEN 'FAILED' WHEN v_more THEN 'RUNNING' ELSE 'COMPLETED' END,
           due_at = v_now + CASE WHEN t.rate IS NOT NULL THEN ceil(v_rows * 1000.0 / t.rate)::bigint
                                 -- What is left is in others' hands for the moment.
                                 WHEN cardinality(v_destinations) = 0 THEN 20
                                 ELSE 0 END
     WHERE t.number = p_number;
    RETURN QUERY SELECT d, count(*)::int FROM unnest(v_destinations) d GROUP BY d;
END $$;

-- Where each message goes, up to the first that cannot go anywhere, and why that one cannot. p_sources are the ARNs of the
-- queues that they died in, and p_permitted of those that they may go back to; NULL is any.
CREATE OR REPLACE FUNCTION penstock.move_destinations(
    p_fifo boolean, p_destination int, p_permitted text[], p_sources text[],
    OUT destinations int[], OUT partitions int[], OUT failure text
) LANGUAGE plpgsql AS $$
DECLARE
    v_bad int;
BEGIN
    SELECT array_agg(q.id ORDER BY u.number), array_agg(q.partition ORDER BY u.number),
           min(u.number) FILTER (WHERE q.id IS NULL)
      INTO destinations, partitions, v_bad
      FROM unnest(p_sources) WITH ORDINALITY u(arn, number)
      LEFT JOIN LATERAL (
          SELECT x.id, x.partition FROM penstock.queue x
           WHERE x.fifo = p_fifo
             AND CASE WHEN p_destination IS NULL
                      THEN x.arn = u.arn AND coalesce(x.arn = ANY (p_permitted), true)
                      ELSE x.id = p_destination END OFFSET 0) q ON true;
    IF v_bad IS NOT NULL THEN
        failure := CASE WHEN p_destination IS NULL AND p_sources[v_bad] IS NULL THEN 'SourceUnknown'
                        WHEN p_destination IS NULL AND p_sources[v_bad] <> ALL (p_permitted) THEN 'DestinationNotPermitted'
                        ELSE 'DestinationDoesNotExist' END;
        destinations := destinations[:v_bad - 1];
        partitions := partitions[:v_bad - 1];
    END IF;
END $$;

CREATE OR REPLACE FUNCTION penstock.move(
    p_partition int, p_retention bigint, p_destination int, p_permitted text[], p_now bigint, p_rows int,
    p_message_ids text[],
    OUT destinations int[], OUT failure text, OUT more boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_positions bigint[];
    v_sources text[];
    v_partitions int[];
BEGIN
    -- Those that came back first, as they would be received; dead letters are among them.
    SELECT coalesce(array_agg(s.position ORDER BY s.number), '{}'),
           coalesce(array_agg(s.dead_letter_source ORDER BY s.number), '{}')
      INTO v_positions, v_sources
      FROM (SELECT row_number() OVER () AS number, b.*
              FROM (SELECT * FROM (SELECT m.position, m.dead_letter_source FROM penstock.message m
                                    WHERE m.due_partition = p_partition AND m.returned
                                      AND m.visible_at <= p_now AND m.sent_at > p_now - p_retention
                                    ORDER BY m.visible_at, m.position LIMIT p_rows FOR UPDATE SKIP LOCKED) a
                    UNION ALL
                    SELECT * FROM (SELECT m.position, m.dead_letter_source FROM penstock.message m
                                    WHERE m.due_partition = p_partition AND NOT m.returned
                                      AND m.visible_at <= p_now AND m.sent_at > p_now - p_retention
                                    ORDER BY m.visible_at, m.position LIMIT p_rows FOR UPDATE SKIP LOCKED) a) b
             LIMIT p_rows) s;
    SELECT coalesce(d.destinations, '{}'), coalesce(d.partitions, '{}'), d.failure INTO destinations, v_partitions, failure
      FROM penstock.move_destinations(false, p_destination, p_permitted, v_sources) d;
    v_positions := v_positions[:cardinality(destinations)];
    WITH drawn AS MATERIALIZED (
        SELECT nextval('penstock.position') AS position, u.was, u.partition, u.number
          FROM unnest(v_positions, v_partitions) WITH ORDINALITY u(was, partition, number)),
    gone AS (
        DELETE FROM penstock.message m WHERE m.partition = p_partition AND m.position = ANY (v_positions)
        RETURNING m.position AS was, m.tenant),
    put AS (
        INSERT INTO penstock.message (partition, position, visible_at, sent_at, tenant)
        SELECT d.partition, d.position, p_now, p_now, g.tenant FROM gone g JOIN drawn d ON d.was = g.was)
    UPDATE penstock.body b SET position = d.position, message_id = p_message_ids[d.number]
      FROM drawn d WHERE b.position = d.was;
    more := EXISTS (
        SELECT FROM penstock.message m
         WHERE m.due_partition = p_partition AND m.returned AND m.visible_at <= p_now AND m.sent_at > p_now - p_retention)
        OR EXISTS (
        SELECT FROM penstock.message m
         WHERE m.due_partition = p_partition AND NOT m.returned
           AND m.visible_at <= p_now AND m.sent_at > p_now - p_retention);
END $$;

CREATE OR REPLACE FUNCTION penstock.move_fifo(
    p_partition int, p_retention bigint, p_destination int, p_permitted text[], p_now bigint, p_rows int,
    p_message_ids text[],
    OUT destinations int[], OUT failure text, OUT more boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_horizon bigint := p_now - p_retention;
    v_group record;
    v_seen bigint[] := '{}';
    v_positions bigint[];
    v_sources text[];
    v_to record;
    v_run record;
    v_done int;
BEGIN
    destinations := '{}';
    more := false;
    WHILE cardinality(destinations) < p_rows AND failure IS NULL LOOP
        SELECT g.id, g.name INTO v_group FROM penstock.fifo_group g
         WHERE g.due_partition = p_partition AND g.ready_at <= p_now AND g.id <> ALL (v_seen)
         ORDER BY g.ready_at, g.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND OR cardinality(v_seen) > p_rows;
        v_seen := v_seen || v_group.id;
        PERFORM penstock.evict_fifo(p_partition, v_group.id, v_group.name, p_now, v_horizon, NULL, NULL, NULL);
        SELECT coalesce(array_agg(s.position ORDER BY s.position) FILTER (WHERE s.due), '{}'),
               coalesce(array_agg(s.dead_letter_source ORDER BY s.position) FILTER (WHERE s.due), '{}')
          INTO v_positions, v_sources
          FROM (SELECT m.position, m.dead_letter_source, bool_and(m.visible_at <= p_now) OVER (ORDER BY m.position) AS due
                  FROM (SELECT f.position, f.visible_at, f.dead_letter_source FROM penstock.fifo_message f
                         WHERE f.group_id = v_group.id ORDER BY f.position LIMIT p_rows - cardinality(destinations)) m) s;
        SELECT coalesce(d.destinations, '{}') AS destinations, d.partitions, d.failure INTO v_to
          FROM penstock.move_destinations(true, p_destination, p_permitted, v_sources) d;
        failure := v_to.failure;
        v_done := 0;
        -- Runs of neighbours that go to the same queue, in order.
        FOR v_run IN
            SELECT r.partition, min(r.number) AS low, max(r.number) AS high
              FROM (SELECT u.partition, u.number,
                           u.number - row_number() OVER (PARTITION BY u.partition ORDER BY u.number) AS island
                      FROM unnest(v_to.partitions) WITH ORDINALITY u(partition, number)) r
             GROUP BY r.partition, r.island ORDER BY 2 LOOP
            IF NOT pg_try_advisory_xact_lock(penstock.group_lock(v_run.partition, v_group.name)) THEN
                more := true;                   -- Someone is sending to it: the next step goes on.
                failure := NULL;
                EXIT;
            END IF;
            PERFORM penstock.transfer(
                p_partition, v_positions[v_run.low : v_run.high], v_run.partition, v_group.name, p_now, NULL,
                p_message_ids[cardinality(destinations) + v_run.low : cardinality(destinations) + v_run.high]);
            v_done := v_run.high;
        END LOOP;
        destinations := destinations || v_to.destinations[:v_done];
        PERFORM penstock.settle(v_group.id, p_now, p_retention);
    END LOOP;
    more := more OR EXISTS (
        SELECT FROM penstock.fifo_group g
         WHERE g.due_partition = p_partition AND g.ready_at <= p_now
           -- A group that was looked at has nothing more, unless the step ended with it.
           AND (g.id <> ALL (v_seen) OR (g.id = v_group.id AND cardinality(destinations) >= p_rows)));
END $$;
