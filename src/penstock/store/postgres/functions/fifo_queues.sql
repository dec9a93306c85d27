-- FIFO queues. Who does what in which order is what keeps the order of messages:
--
-- * Whoever adds to a group (a sender, a dead-letter move, a move task) holds the group's advisory lock before drawing
--   positions, so within a group positions are committed in their order. Adding never locks the group's row.
-- * Whoever takes from a group locks the group's row, and reads its messages in a NEW statement: its snapshot is then
--   younger than the lock. One statement for both would read messages as they were before the lock was given.
-- * An empty group's row is removed only by someone who holds both.
--
-- Leases never wait for a group (they pass over locked rows, and only try advisory locks); senders wait for each other's
-- advisory locks in sorted order, and all others for rows in sorted order: no circle can form.

CREATE OR REPLACE FUNCTION penstock.group_lock(p_partition int, p_name text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT hashtextextended(p_name, p_partition) $$;

CREATE OR REPLACE FUNCTION penstock.append_fifo(
    p_pinned bigint,
    p_window bigint,
    p_deduplication_window bigint,
    -- one element for each request
    p_keys bytea[], p_queues int[], p_results bytea[], p_retention bigint[],
    -- one element for each message; p_request is the number of the request it belongs to
    p_request int[], p_delay bigint[], p_message_id text[], p_body text[], p_attributes bytea[], p_sender text[],
    p_group text[], p_scope text[], p_deduplication_id text[]
) RETURNS TABLE (request int, missing boolean, kept bytea, kept_ids text[], kept_sequences bigint[])
-- Returns every request: `kept` is NULL where it was stored now, and the ids and sequence numbers are those of its messages.
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_partitions int[];
    v_fresh bytea[];
    v_positions bigint[];
    v_ids text[] := p_message_id;
    v_new int[];                                -- numbers of the messages that are stored, in order
    v_first int[];                              -- of those that have a deduplication id, the first of each within this call
    v_repeats boolean;
BEGIN
    v_partitions := penstock.partitions_of(p_queues, true);
    PERFORM pg_advisory_xact_lock(k.hash) FROM (
        SELECT DISTINCT penstock.group_lock(v_partitions[u.request], u.name) AS hash
          FROM unnest(p_request, p_group) u(request, name)
         WHERE v_partitions[u.request] IS NOT NULL ORDER BY 1 OFFSET 0) k;
    v_now := penstock.now_ms(p_pinned);
    v_fresh := penstock.keep_append_outcomes(v_now, p_window, p_keys, v_partitions, p_results);
    IF cardinality(v_fresh) < cardinality(p_keys) THEN
        RETURN QUERY SELECT * FROM penstock.kept_append_outcomes(v_now, p_keys, v_partitions, v_fresh);
        v_partitions := ARRAY(
            SELECT CASE WHEN r.key = ANY (v_fresh) THEN r.partition END
              FROM unnest(p_keys, v_partitions) WITH ORDINALITY r(key, partition, number) ORDER BY r.number);
    END IF;
    IF cardinality(v_fresh) = 0 THEN
        RETURN;
    END IF;

    v_positions := ARRAY(SELECT nextval('penstock.position') FROM generate_series(1, cardinality(p_request)));
    v_new := ARRAY(SELECT u.number::int FROM unnest(p_request) WITH ORDINALITY u(request, number)
                    WHERE v_partitions[u.request] IS NOT NULL ORDER BY u.number);
    v_first := ARRAY(
        SELECT DISTINCT ON (v_partitions[p_request[n]], p_scope[n], p_deduplication_id[n]) n FROM unnest(v_new) n
         WHERE p_deduplication_id[n] IS NOT NULL
         ORDER BY v_partitions[p_request[n]], p_scope[n], p_deduplication_id[n], n);
    IF cardinality(v_first) > 0 THEN
        -- Sorted above, and so never in a circle: each waits for another transaction that is writing the same id.
        WITH written AS (
            INSERT INTO penstock.deduplication AS d (partition, scope, deduplication_id, expires_at, position, message_id)
            SELECT v_partitions[p_request[n]], p_scope[n], p_deduplication_id[n], v_now + p_deduplication_window,
                   v_positions[n], p_message_id[n]
              FROM unnest(v_first) n
            ON CONFLICT (partition, scope, deduplication_id) DO UPDATE
               SET expires_at = EXCLUDED.expires_at, position = EXCLUDED.position, message_id = EXCLUDED.message_id
             WHERE d.expires_at <= v_now
            RETURNING d.position)
        SELECT ARRAY(SELECT n FROM unnest(v_new) n
                      WHERE p_deduplication_id[n] IS NULL OR v_positions[n] IN (SELECT w.position FROM written w)
                      ORDER BY n),
               (SELECT count(*) FROM written) < cardinality(v_first)
                   OR cardinality(v_first) < (SELECT count(*) FROM unnest(v_new) n WHERE p_deduplication_id[n] IS NOT NULL)
          INTO v_new, v_repeats;
        IF v_repeats THEN
            SELECT array_agg(coalesce(d.position, v_positions[u.number]) ORDER BY u.number),
                   array_agg(coalesce(d.message_id, p_message_id[u.number]) ORDER BY u.number)
              INTO v_positions, v_ids
              FROM unnest(p_request, p_scope, p_deduplication_id) WITH ORDINALITY u(request, scope, id, number)
              LEFT JOIN penstock.deduplication d
                ON d.partition = v_partitions[u.request] AND d.scope = u.scope AND d.deduplication_id = u.id;
        END IF;
    END IF;

    INSERT INTO penstock.fifo_group (partition, name, ready_at)
    SELECT g.partition, g.name, g.ready_at
      FROM (SELECT v_partitions[p_request[n]] AS partition, p_group[n] AS name,
                   -- The first one of a new group is its head; from its expiry on it holds nothing back.
                   (array_agg(v_now + least(p_delay[n], p_retention[p_request[n]]) ORDER BY n))[1] AS ready_at
              FROM unnest(v_new) n GROUP BY 1, 2) g
     WHERE NOT EXISTS (SELECT FROM penstock.fifo_group x WHERE x.partition = g.partition AND x.name = g.name);
    WITH fresh AS MATERIALIZED (
        SELECT v_positions[u.number] AS position, v_partitions[u.request] AS partition, u.*
          FROM unnest(p_request, p_delay, p_message_id, p_body, p_attributes, p_sender, p_group, p_deduplication_id)
               WITH ORDINALITY
               u(request, delay, message_id, body, attributes, sender, group_name, deduplication_id, number)
         WHERE u.number = ANY (v_new)),
    stored AS (
        INSERT INTO penstock.fifo_message (partition, position, group_id, visible_at, sent_at)
        SELECT f.partition, f.position,
               (SELECT g.id FROM penstock.fifo_group g WHERE g.partition = f.partition AND g.name = f.group_name),
               v_now + f.delay, v_now
          FROM fresh f)
    INSERT INTO penstock.body (position, message_id, body, attributes, sender, group_name, deduplication_id)
    SELECT f.position, f.message_id, f.body, f.attributes, f.sender, f.group_name, f.deduplication_id FROM fresh f;

    RETURN QUERY
        WITH answer AS MATERIALIZED (
            SELECT u.request, array_agg(v_ids[u.number] ORDER BY u.number) AS ids,
                   array_agg(v_positions[u.number] ORDER BY u.number) AS sequences
              FROM unnest(p_request) WITH ORDINALITY u(request, number)
             WHERE v_partitions[u.request] IS NOT NULL GROUP BY u.request),
        written AS (
            UPDATE penstock.append_outcome o SET message_ids = a.ids, sequences = a.sequences
              FROM answer a WHERE o.key = p_keys[a.request])
        SELECT a.request, false, NULL::bytea, a.ids, a.sequences FROM answer a;
END $$;

-- Set from when on a group may be leased from, which is when its first message is visible, or remove it if it is empty; the
-- caller has locked its row. Says whether something may be leasable sooner than before.
CREATE OR REPLACE FUNCTION penstock.settle(p_group bigint, p_now bigint, p_retention bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_group penstock.fifo_group;
    v_leased bigint;
    v_head bigint;
    v_ready bigint;
    v_until bigint;
BEGIN
    SELECT * INTO v_group FROM penstock.fifo_group g WHERE g.id = p_group;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF v_group.leased_to > 0 THEN
        SELECT max(least(m.visible_at, m.sent_at + p_retention)) INTO v_leased FROM penstock.fifo_message m
         WHERE m.group_id = p_group AND m.position <= v_group.leased_to AND m.visible_at > p_now AND m.receipt > 0
           AND m.sent_at > p_now - p_retention;
    END IF;
    SELECT least(m.visible_at, m.sent_at + p_retention) INTO v_head FROM penstock.fifo_message m
     WHERE m.group_id = p_group ORDER BY m.position LIMIT 1;
    IF v_head IS NULL AND pg_try_advisory_xact_lock(penstock.group_lock(v_group.partition, v_group.name)) THEN
        -- A sender may have committed just before it let the lock go: this statement sees that, the last one did not.
        DELETE FROM penstock.fifo_group g
         WHERE g.id = p_group AND NOT EXISTS (SELECT FROM penstock.fifo_message m WHERE m.group_id = p_group);
        IF FOUND THEN
            RETURN false;
        END IF;
    END IF;
    -- Never back in time, for the scan floor depends on it. An empty group whose sender is at work is ready at once.
    v_ready := greatest(v_head, p_now);
    v_until := CASE WHEN v_leased > v_ready THEN v_leased END;
    UPDATE penstock.fifo_group g
       SET ready_at = v_ready, leased_to = CASE WHEN v_leased IS NULL THEN 0 ELSE g.leased_to END, leased_until = v_until
     WHERE g.id = p_group
       AND (g.ready_at <> v_ready OR (v_leased IS NULL AND g.leased_to > 0) OR g.leased_until IS DISTINCT FROM v_until);
    RETURN v_ready < v_group.ready_at OR v_ready <= p_now;
END $$;

-- Take away messages of a locked group that no lease may deliver: expired ones, and dead letters among those before the
-- first that is hidden. Says how many went to the dead-letter queue; NULL if that queue's group was busy.
CREATE OR REPLACE FUNCTION penstock.evict_fifo(
    p_partition int, p_group bigint, p_name text, p_now bigint, p_horizon bigint, p_receives_max int,
    p_dead_letter_partition int, p_source text
) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_positions bigint[];
BEGIN
    WITH expired AS MATERIALIZED (
        SELECT o.position FROM (SELECT m.position, m.sent_at FROM penstock.fifo_message m
                                 WHERE m.group_id = p_group ORDER BY m.position LIMIT 1000) o
         WHERE o.sent_at <= p_horizon),
    gone AS (
        DELETE FROM penstock.fifo_message m
         WHERE m.partition = p_partition AND m.position = ANY (ARRAY(SELECT e.position FROM expired e)))
    DELETE FROM penstock.body b USING expired e WHERE b.position = e.position;
    IF p_receives_max IS NULL THEN
        RETURN 0;
    END IF;
    v_positions := ARRAY(
        SELECT o.position
          FROM (SELECT m.position, m.receive_count, bool_and(m.visible_at <= p_now) OVER (ORDER BY m.position) AS due
                  FROM (SELECT f.position, f.receive_count, f.visible_at FROM penstock.fifo_message f
                         WHERE f.group_id = p_group ORDER BY f.position LIMIT 1000) m) o
         WHERE o.receive_count >= p_receives_max AND o.due ORDER BY o.position);
    IF v_positions = '{}' THEN
        RETURN 0;
    END IF;
    IF NOT pg_try_advisory_xact_lock(penstock.group_lock(p_dead_letter_partition, p_name)) THEN
        RETURN NULL;
    END IF;
    PERFORM penstock.transfer(p_partition, v_positions, p_dead_letter_partition, p_name, p_now, p_source, NULL);
    RETURN cardinality(v_positions);
END $$;

-- Put messages of a locked group at the end of the same group of another queue, whose advisory lock is held: as dead
-- letters of p_source, or as new messages under new ids.
CREATE OR REPLACE FUNCTION penstock.transfer(
    p_from int, p_positions bigint[], p_to int, p_name text, p_now bigint, p_source text, p_message_ids text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_group bigint;
BEGIN
    SELECT g.id INTO v_group FROM penstock.fifo_group g WHERE g.partition = p_to AND g.name = p_name;
    IF NOT FOUND THEN
        INSERT INTO penstock.fifo_group (partition, name, ready_at) VALUES (p_to, p_name, p_now) RETURNING id INTO v_group;
    END IF;
    WITH drawn AS MATERIALIZED (
        SELECT nextval('penstock.position') AS position, c.position AS was, c.number
          FROM unnest(p_positions) WITH ORDINALITY c(position, number)),
    gone AS (
        DELETE FROM penstock.fifo_message m WHERE m.partition = p_from AND m.position = ANY (p_positions)
        RETURNING m.position AS was, m.receipt, m.receive_count + coalesce(m.received_elsewhere, 0) AS received),
    put AS (
        INSERT INTO penstock.fifo_message (partition, position, group_id, receipt, visible_at, sent_at, dead_letter_source,
                                           received_elsewhere)
        SELECT p_to, d.position, v_group, CASE WHEN p_message_ids IS NULL THEN g.receipt + 1 ELSE 0 END, p_now, p_now,
               p_source, CASE WHEN p_message_ids IS NULL THEN g.received END
          FROM gone g JOIN drawn d ON d.was = g.was)
    UPDATE penstock.body b SET position = d.position, message_id = coalesce(p_message_ids[d.number], b.message_id)
      FROM drawn d WHERE b.position = d.was;
END $$;

CREATE OR REPLACE FUNCTION penstock.lease_fifo(
    p_pinned bigint,
    p_window bigint,
    p_in_flight_max int,
    p_batch bytea,
    -- as for standard queues, but each request is one lease
    p_keys bytea[], p_asked boolean[], p_retries int[], p_request int[], p_shares int[], p_again boolean,
    p_queues int[], p_counts int[], p_lease bigint[], p_retention bigint[],
    p_receives_max int[], p_dead_letter_arn text[], p_arn text[],
    p_floor_partition int[], p_floor bigint[],  -- no group of that partition is ready from before its floor, the first of two
    p_exact boolean[]
) RETURNS TABLE (
    request int,
    "position" bigint, receipt int, receive_count int, sent_at bigint, first_received_at bigint, dead_letter_source text,
    message_id text, body text, attributes bytea, sender text, group_name text, deduplication_id text,
    missing boolean, "partition" int, in_flight int, moved int, dead_letter_queue int, next_in bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_partition int;
    v_floor bigint;
    v_horizon bigint;
    v_left int;
    v_receives_max int;
    v_dead_letter int;
    v_dead_letter_partition int;
    v_asking int;                               -- how many requests for this queue are yet to be served
    v_seen bigint[];                            -- all groups of this queue that were locked
    v_ids bigint[];                             -- those locked last, with their names, from v_next on yet to be used
    v_names text[];
    v_next int;
    v_looked int;
    v_group bigint;
    v_name text;
    v_given boolean;
    v_run bigint[];
    v_doomed boolean;
    v_moved int;
    v_more int;
    v_in_flight int;
    v_idle int := 0;                            -- the last request that found nothing at all
    v_idle_next_in bigint;
BEGIN
    PERFORM penstock.take_turns(p_batch, p_keys, p_asked, p_again);
    v_now := penstock.now_ms(p_pinned);
    FOR i IN 1 .. cardinality(p_queues) LOOP
        request := i; missing := false; in_flight := NULL; moved := 0; dead_letter_queue := NULL; next_in := NULL;
        IF i = 1 OR p_queues[i] <> p_queues[i - 1] THEN
            v_partition := (SELECT q.partition FROM penstock.queue q WHERE q.id = p_queues[i] AND q.fifo);
            v_asking := (SELECT count(*) FROM unnest(p_queues) u(queue) WHERE u.queue = p_queues[i]);
            v_seen := '{}';
            v_ids := '{}';
            v_next := 1;
        ELSE
            v_asking := v_asking - 1;
        END IF;
        partition := v_partition;
        IF v_partition IS NULL THEN
            missing := true; RETURN NEXT; CONTINUE;
        END IF;
        v_floor := CASE WHEN p_floor_partition[i] = v_partition THEN p_floor[i][1] ELSE 0 END;
        v_horizon := v_now - p_retention[i];
        v_left := p_counts[i];

        IF p_again THEN
            RETURN QUERY SELECT i, k.*, NULL::boolean, NULL::int, NULL::int, NULL::int, NULL::int, NULL::bigint
                FROM penstock.lease_fifo_again(
                    v_partition, p_keys[i], v_now, p_retention[i], p_lease[i], p_retries[i]) k;
            IF FOUND THEN
                RETURN NEXT; CONTINUE;
            END IF;
        END IF;

        IF p_exact[i] THEN
            PERFORM pg_advisory_xact_lock(1, v_partition);
            v_now := penstock.now_ms(p_pinned);
            v_horizon := v_now - p_retention[i];
            v_in_flight := (SELECT count(*) FROM (
                SELECT FROM (SELECT g.id, g.leased_to FROM penstock.fifo_group g
                              WHERE g.due_partition = v_partition AND g.ready_at > v_now AND g.leased_to > 0
                             UNION ALL
                             SELECT g.id, g.leased_to FROM penstock.fifo_group g
                              WHERE g.due_partition = v_partition AND g.ready_at <= v_now AND g.leased_until > v_now) g
                  JOIN penstock.fifo_message m ON m.group_id = g.id
                 WHERE m.position <= g.leased_to AND m.visible_at > v_now AND m.receipt > 0 AND m.sent_at > v_horizon
                 LIMIT p_in_flight_max) s);
            in_flight := v_in_flight;
            v_left := least(v_left, p_in_flight_max - v_in_flight);
            IF v_left <= 0 THEN
                RETURN NEXT; CONTINUE;
            END IF;
        END IF;
        IF v_idle = i - 1 AND p_queues[i] = p_queues[i - 1] AND p_retention[i] = p_retention[i - 1]
           AND p_receives_max[i] IS NOT DISTINCT FROM p_receives_max[i - 1] THEN
            -- Nor is there anything for the next one that asks for the same.
            v_idle := i; next_in := v_idle_next_in; RETURN NEXT; CONTINUE;
        END IF;

        v_receives_max := NULL;
        IF p_dead_letter_arn[i] IS NOT NULL THEN
            SELECT q.id, q.partition INTO v_dead_letter, v_dead_letter_partition FROM penstock.queue q
             WHERE q.arn = p_dead_letter_arn[i] AND q.fifo;
            v_receives_max := CASE WHEN FOUND THEN p_receives_max[i] END;
        END IF;
        v_moved := 0;
        v_looked := 0;
        v_given := false;
        WHILE v_left > 0 LOOP
            -- The next ready group: locked, together with as many as there are others who ask for one.
            IF v_next > cardinality(v_ids) THEN
                SELECT coalesce(array_agg(s.id ORDER BY s.ready_at, s.id), '{}'), array_agg(s.name ORDER BY s.ready_at, s.id)
                  INTO v_ids, v_names
                  FROM (SELECT g.id, g.name, g.ready_at FROM penstock.fifo_group g
                         WHERE g.due_partition = v_partition AND g.ready_at <= v_now AND g.ready_at >= v_floor
                           AND g.id <> ALL (v_seen)
                         ORDER BY g.ready_at, g.id LIMIT v_asking FOR UPDATE SKIP LOCKED) s;
                EXIT WHEN v_ids = '{}';
                v_seen := v_seen || v_ids;
                v_next := 1;
            END IF;
            v_group := v_ids[v_next];
            v_name := v_names[v_next];
            v_next := v_next + 1;
            v_looked := v_looked + 1;
            IF v_looked > p_counts[i] + 100 THEN
                next_in := 0;                   -- So many groups with nothing to give: the next lease goes on.
                EXIT;
            END IF;
            -- Its messages before the first that is hidden, in a statement of its own.
            FOR v_round IN 1 .. 20 LOOP
                SELECT coalesce(array_agg(s.position ORDER BY s.position) FILTER (WHERE s.due), '{}'),
                       coalesce(bool_or(s.doomed), false)
                  INTO v_run, v_doomed
                  FROM (SELECT d.position, d.due, d.sent_at <= v_horizon OR (d.due AND d.receive_count >= v_receives_max) AS doomed
                          FROM (SELECT m.*, bool_and(m.visible_at <= v_now) OVER (ORDER BY m.position) AS due
                                  FROM (SELECT f.position, f.visible_at, f.sent_at, f.receive_count
                                          FROM penstock.fifo_message f
                                         WHERE f.group_id = v_group ORDER BY f.position LIMIT v_left) m) d) s;
                EXIT WHEN NOT v_doomed;
                v_more := penstock.evict_fifo(v_partition, v_group, v_name, v_now, v_horizon, v_receives_max,
                                              v_dead_letter_partition, p_arn[i]);
                EXIT WHEN v_more IS NULL;
                v_moved := v_moved + v_more;
            END LOOP;
            IF v_doomed THEN
                next_in := CASE WHEN v_more IS NULL THEN 20 ELSE 0 END;
                CONTINUE;
            END IF;
            IF v_run = '{}' THEN
                PERFORM penstock.settle(v_group, v_now, p_retention[i]);
                CONTINUE;
            END IF;
            RETURN QUERY
                WITH given AS (
                    UPDATE penstock.fifo_message m
                       SET receipt = m.receipt + 1, receive_count = m.receive_count + 1, visible_at = v_now + p_lease[i],
                           leased_at = v_now, first_received_at = coalesce(m.first_received_at, v_now), holder = 0
                     WHERE m.partition = v_partition AND m.position = ANY (v_run)
                    RETURNING array_position(v_run, m.position) AS number, m.position, m.receipt,
                              m.receive_count + coalesce(m.received_elsewhere, 0) AS receive_count, m.sent_at,
                              m.first_received_at, m.dead_letter_source),
                hidden AS (
                    UPDATE penstock.fifo_group x
                       SET ready_at = greatest(v_now, s.ready_at), leased_to = greatest(x.leased_to, s.leased_to),
                           -- Where the first of them expires before its lease is over.
                           leased_until = greatest(x.leased_until,
                                                   CASE WHEN s.ready_at < v_now + p_lease[i] THEN v_now + p_lease[i] END)
                      FROM (SELECT min(least(v_now + p_lease[i], g.sent_at + p_retention[i])) AS ready_at,
                                   max(g.position) AS leased_to FROM given g) s
                     WHERE x.id = v_group),
                kept AS (
                    INSERT INTO penstock.lease_outcome AS o (key, expires_at, positions, receipts)
                    SELECT p_keys[i], v_now + p_window, array_agg(g.position ORDER BY g.position),
                           array_agg(g.receipt ORDER BY g.position) FROM given g
                    -- There is one already only of an earlier group of this same lease.
                    ON CONFLICT (key) DO UPDATE
                       SET positions = o.positions || EXCLUDED.positions, receipts = o.receipts || EXCLUDED.receipts)
                SELECT i, g.position, g.receipt, g.receive_count, g.sent_at, g.first_received_at, g.dead_letter_source,
                       b.message_id, b.body, b.attributes, b.sender, b.group_name, b.deduplication_id,
                       NULL::boolean, NULL::int, NULL::int, NULL::int, NULL::int, NULL::bigint
                  FROM given g JOIN penstock.body b ON b.position = g.position
                 ORDER BY g.number;             -- Not by position: the planner would walk over all bodies to have that order.
            v_given := true;
            v_left := v_left - cardinality(v_run);
        END LOOP;
        -- Mostly it is no retry that leases.
        IF v_given AND 0 < ANY (p_retries) THEN
            UPDATE penstock.fifo_message m SET holder = u.retry
              FROM unnest(p_keys, p_retries, p_request) u(key, retry, request)
              JOIN penstock.lease_outcome o ON o.key = u.key
             WHERE u.request = i AND u.retry > 0 AND m.partition = v_partition AND m.position = ANY (o.positions);
        END IF;
        moved := v_moved;
        IF v_moved > 0 THEN
            dead_letter_queue := v_dead_letter;
        END IF;
        IF NOT v_given THEN
            IF next_in IS NULL THEN
                v_idle := i;
            END IF;
            -- As for standard queues.
            next_in := least(
                next_in,
                (SELECT g.ready_at - v_now FROM penstock.fifo_group g
                  WHERE g.due_partition = v_partition AND g.ready_at > v_now
                    AND g.ready_at <= CASE WHEN p_pinned IS NULL THEN v_now + 1000 ELSE 9223372036854775807 END
                  ORDER BY g.ready_at LIMIT 1),
                (SELECT 20 FROM penstock.fifo_group g
                  WHERE g.due_partition = v_partition AND g.ready_at <= v_now AND g.ready_at >= v_floor
                  ORDER BY g.ready_at LIMIT 1),
                CASE WHEN p_pinned IS NULL THEN 1000 END);
            v_idle_next_in := next_in;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- As lease_again, and the groups stay blocked as long as their first messages. What came back is to be delivered before what
-- is behind it in its group, which is therefore not given again.
CREATE OR REPLACE FUNCTION penstock.lease_fifo_again(
    p_partition int, p_key bytea, p_now bigint, p_retention bigint, p_lease bigint, p_retry int)
RETURNS TABLE (
    "position" bigint, receipt int, receive_count int, sent_at bigint, first_received_at bigint, dead_letter_source text,
    message_id text, body text, attributes bytea, sender text, group_name text, deduplication_id text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_positions bigint[];
    v_receipts int[];
    v_groups bigint[];
BEGIN
    SELECT o.positions, o.receipts INTO v_positions, v_receipts
      FROM penstock.lease_outcome o WHERE o.key = p_key AND o.expires_at > p_now;
    v_groups := ARRAY(
        SELECT DISTINCT m.group_id FROM penstock.fifo_message m
         WHERE m.partition = p_partition AND m.position = ANY (v_positions));
    PERFORM penstock.lock_groups(v_groups);
    RETURN QUERY
        WITH given AS (
            UPDATE penstock.fifo_message m
               SET visible_at = greatest(m.visible_at, p_now + p_lease),
                   holder = CASE WHEN p_retry IS NULL THEN m.holder WHEN p_retry > m.holder THEN p_retry END
             WHERE m.partition = p_partition AND m.position = ANY (v_positions)
               AND m.receipt = v_receipts[array_position(v_positions, m.position)]
               AND m.visible_at > p_now AND m.sent_at > p_now - p_retention
               AND NOT EXISTS (
                   SELECT FROM penstock.fifo_message e
                    WHERE e.group_id = m.group_id AND e.position < m.position AND e.sent_at > p_now - p_retention
                      AND (e.visible_at <= p_now
                           OR e.receipt IS DISTINCT FROM v_receipts[array_position(v_positions, e.position)]))
            RETURNING array_position(v_positions, m.position) AS number, m.position, m.receipt,
                      m.receive_count + coalesce(m.received_elsewhere, 0) AS receive_count, m.sent_at,
                      m.first_received_at, m.dead_letter_source)
        SELECT g.position, g.receipt, g.receive_count, g.sent_at, g.first_received_at, g.dead_letter_source,
               b.message_id, b.body, b.attributes, b.sender, b.group_name, b.deduplication_id
          FROM given g JOIN penstock.body b ON b.position = g.position
         ORDER BY g.number;
    IF NOT FOUND THEN
        DELETE FROM penstock.lease_outcome o WHERE o.key = p_key;
        RETURN;
    END IF;
    PERFORM penstock.settle(g.id, p_now, p_retention) FROM unnest(v_groups) g(id);
END $$;

CREATE OR REPLACE FUNCTION penstock.lock_groups(p_groups bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT u.id FROM unnest(p_groups) u(id) ORDER BY u.id OFFSET 0) s
            CROSS JOIN LATERAL (SELECT FROM penstock.fifo_group g WHERE g.id = s.id FOR UPDATE) g;
END $$;

-- The groups of messages that receipts name, locked; in the order of the entries, NULL where the message is gone.
CREATE OR REPLACE FUNCTION penstock.lock_groups_of(p_partitions int[], p_positions bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_groups bigint[];
BEGIN
    v_groups := ARRAY(
        SELECT (SELECT m.group_id FROM penstock.fifo_message m
                 WHERE m.partition = u.partition AND m.position = u.position)
          FROM unnest(p_partitions, p_positions) WITH ORDINALITY u(partition, position, number) ORDER BY u.number);
    PERFORM penstock.lock_groups(v_groups);
    RETURN v_groups;
END $$;

-- Settle groups after a change; returns those from which more may be leasable now, as the numbers of their first entries.
CREATE OR REPLACE FUNCTION penstock.settle_all(p_groups bigint[], p_now bigint, p_retention bigint[]) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    v_entry record;
    v_ready int[] := '{}';
BEGIN
    FOR v_entry IN SELECT u.id, min(u.retention) AS retention, min(u.number)::int AS number
                     FROM unnest(p_groups, p_retention) WITH ORDINALITY u(id, retention, number)
                    WHERE u.id IS NOT NULL GROUP BY u.id ORDER BY u.id LOOP
        IF penstock.settle(v_entry.id, p_now, v_entry.retention) THEN
            v_ready := v_ready || v_entry.number;
        END IF;
    END LOOP;
    RETURN v_ready;
END $$;

-- Delete by receipt. Codes: 0 deleted or gone, 2 expired, 5 no such queue.
CREATE OR REPLACE FUNCTION penstock.delete_fifo(
    p_pinned bigint, p_queues int[], p_positions bigint[], p_receipts int[], p_retention bigint[],
    OUT codes int[], OUT ready int[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_partitions int[] := penstock.partitions_of(p_queues, true);
    v_groups bigint[] := penstock.lock_groups_of(v_partitions, p_positions);
    v_now bigint := penstock.now_ms(p_pinned);
    v_deleted int;
BEGIN
    WITH gone AS (
        DELETE FROM penstock.fifo_message m
         USING unnest(v_partitions, p_positions, p_receipts) u(partition, position, receipt)
         WHERE m.partition = u.partition AND m.position = u.position AND m.receipt = u.receipt AND m.visible_at > v_now
        RETURNING m.position)
    DELETE FROM penstock.body b USING gone g WHERE b.position = g.position;
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    IF v_deleted < cardinality(p_positions) THEN
        PERFORM penstock.confirm(v_now);
    END IF;
    codes := ARRAY(
        SELECT CASE WHEN u.partition IS NULL THEN 5
                    WHEN m.position IS NULL OR m.sent_at <= v_now - u.retention THEN 0
                    ELSE 2 END
          FROM unnest(v_partitions, p_positions, p_retention) WITH ORDINALITY u(partition, position, retention, number)
          LEFT JOIN penstock.fifo_message m ON m.partition = u.partition AND m.position = u.position
         ORDER BY u.number);
    ready := penstock.settle_all(v_groups, v_now, p_retention);
END $$;

-- As change_visibility for standard queues, with the same codes.
CREATE OR REPLACE FUNCTION penstock.change_visibility_fifo(
    p_pinned bigint, p_window bigint, p_lease_max bigint, p_key bytea, p_repeated boolean,
    p_queues int[], p_positions bigint[], p_receipts int[], p_lease bigint[], p_retention bigint[], p_round int[]
) RETURNS int[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_partitions int[] := penstock.partitions_of(p_queues, true);
    v_groups bigint[];
    v_now bigint;
    v_codes int[];
BEGIN
    PERFORM penstock.take_turn(p_key);
    IF p_repeated THEN
        v_codes := penstock.kept_codes(p_key);
        IF v_codes IS NOT NULL THEN
            RETURN v_codes;
        END IF;
    END IF;
    v_groups := penstock.lock_groups_of(v_partitions, p_positions);
    v_now := penstock.now_ms(p_pinned);
    v_codes := array_fill(NULL::int, ARRAY[cardinality(p_queues)]);
    FOR v_round IN 1 .. (SELECT max(r) FROM unnest(p_round) r) LOOP
        v_codes := ARRAY(
            SELECT CASE WHEN u.round <> v_round THEN u.code
                        WHEN u.partition IS NULL THEN 5
                        WHEN m.position IS NULL OR m.sent_at <= v_now - u.retention THEN 3
                        WHEN m.receipt <> u.receipt OR m.visible_at <= v_now THEN 2
                        WHEN v_now + u.lease > m.leased_at + p_lease_max THEN 4
                        WHEN v_now + u.lease < m.visible_at THEN 1
                        ELSE 0 END
              FROM unnest(v_partitions, p_positions, p_receipts, p_lease, p_retention, p_round, v_codes) WITH ORDINALITY
                   u(partition, position, receipt, lease, retention, round, code, number)
              LEFT JOIN penstock.fifo_message m ON m.partition = u.partition AND m.position = u.position
             ORDER BY u.number);
        UPDATE penstock.fifo_message m SET visible_at = v_now + u.lease, holder = NULL
          FROM unnest(v_partitions, p_positions, p_lease, p_round, v_codes) u(partition, position, lease, round, code)
         WHERE u.round = v_round AND u.code <= 1 AND m.partition = u.partition AND m.position = u.position;
    END LOOP;
    PERFORM penstock.settle_all(v_groups, v_now, p_retention);
    PERFORM penstock.keep_codes(p_key, v_now + p_window, v_codes);
    RETURN v_codes;
END $$;

-- As release for standard queues, with the same codes.
CREATE OR REPLACE FUNCTION penstock.release_fifo(
    p_pinned bigint, p_queues int[], p_positions bigint[], p_receipts int[], p_holders int[], p_retention bigint[]
) RETURNS int[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_partitions int[] := penstock.partitions_of(p_queues, true);
    v_groups bigint[] := penstock.lock_groups_of(v_partitions, p_positions);
    v_now bigint := penstock.now_ms(p_pinned);
    v_codes int[];
BEGIN
    v_codes := ARRAY(
        SELECT CASE WHEN u.partition IS NULL THEN 5 WHEN m.receipt = u.receipt AND m.holder = u.holder THEN 0 ELSE 1 END
          FROM unnest(v_partitions, p_positions, p_receipts, p_holders) WITH ORDINALITY
               u(partition, position, receipt, holder, number)
          LEFT JOIN penstock.fifo_message m ON m.partition = u.partition AND m.position = u.position
         ORDER BY u.number);
    UPDATE penstock.fifo_message m
       SET visible_at = v_now, receipt = m.receipt + 1, receive_count = m.receive_count - 1,
           first_received_at = CASE WHEN m.receive_count > 1 THEN m.first_received_at END
      FROM unnest(v_partitions, p_positions, v_codes) u(partition, position, code)
     WHERE u.code = 0 AND m.partition = u.partition AND m.position = u.position;
    PERFORM penstock.settle_all(v_groups, v_now, p_retention);
    RETURN v_codes;
END $$;
