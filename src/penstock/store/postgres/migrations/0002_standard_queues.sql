-- Standard queues: each function does the work of many callers in one call, and so in one transaction and one round trip.
--
-- The planner is told to walk indexes: its guesses are made while tables are empty, and outlive their growth.

CREATE FUNCTION penstock.append(
    p_pinned bigint,
    p_window bigint,
    -- one element for each request
    p_keys bytea[], p_queues int[], p_results bytea[],
    -- one element for each message; p_request is the number of the request it belongs to
    p_request int[], p_delay bigint[], p_message_id text[], p_body text[], p_attributes bytea[], p_sender text[],
    p_group text[]
) RETURNS TABLE (request int, missing boolean, kept bytea, kept_ids text[], kept_sequences bigint[])
-- Returns only the requests that were not stored: their queue is missing, or an earlier answer was kept under their key.
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_now bigint := penstock.now_ms(p_pinned);
    v_partitions int[];
    v_fresh bytea[];
BEGIN
    v_partitions := ARRAY(
        SELECT (SELECT q.partition FROM penstock.queue q WHERE q.id = r.queue AND NOT q.fifo)
          FROM unnest(p_queues) WITH ORDINALITY r(queue, number) ORDER BY r.number);
    v_fresh := penstock.keep_append_outcomes(v_now, p_window, p_keys, v_partitions, p_results);
    IF cardinality(v_fresh) < cardinality(p_keys) THEN
        RETURN QUERY SELECT * FROM penstock.kept_append_outcomes(v_now, p_keys, v_partitions, v_fresh);
        v_partitions := ARRAY(
            SELECT CASE WHEN r.key = ANY (v_fresh) THEN r.partition END
              FROM unnest(p_keys, v_partitions) WITH ORDINALITY r(key, partition, number) ORDER BY r.number);
    END IF;
    WITH fresh AS MATERIALIZED (
        SELECT nextval('penstock.position') AS position, u.*
          FROM unnest(p_request, p_delay, p_message_id, p_body, p_attributes, p_sender, p_group)
               u(request, delay, message_id, body, attributes, sender, group_name)
         WHERE v_partitions[u.request] IS NOT NULL),
    stored AS (
        INSERT INTO penstock.message (partition, position, visible_at, sent_at, tenant)
        SELECT v_partitions[f.request], f.position, v_now + f.delay, v_now, hashtextextended(f.group_name, 0)
          FROM fresh f)
    INSERT INTO penstock.body (position, message_id, body, attributes, sender, group_name)
    SELECT f.position, f.message_id, f.body, f.attributes, f.sender, f.group_name FROM fresh f;
END $$;

-- Keep the answers of the requests whose queue exists, and return the keys of those that had none before: theirs is the
-- work to do. Waits for another transaction that is writing the same key. Keys are distinct within one call.
CREATE FUNCTION penstock.keep_append_outcomes(
    p_now bigint, p_window bigint, p_keys bytea[], p_partitions int[], p_results bytea[]
) RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
    v_fresh bytea[];
BEGIN
    WITH written AS (
        INSERT INTO penstock.append_outcome AS o (key, expires_at, results)
        SELECT r.key, p_now + p_window, r.results
          FROM unnest(p_keys, p_partitions, p_results) r(key, partition, results)
         WHERE r.partition IS NOT NULL
         ORDER BY r.key
        ON CONFLICT (key) DO UPDATE
           SET expires_at = EXCLUDED.expires_at, results = EXCLUDED.results, message_ids = NULL, sequences = NULL
         WHERE o.expires_at <= p_now
        RETURNING o.key)
    SELECT coalesce(array_agg(key), '{}') INTO v_fresh FROM written;
    RETURN v_fresh;
END $$;

-- What earlier appends left for the requests that are not fresh, in a statement of its own: its snapshot is younger than
-- the end of a transaction that was waited for above.
CREATE FUNCTION penstock.kept_append_outcomes(p_now bigint, p_keys bytea[], p_partitions int[], p_fresh bytea[])
RETURNS TABLE (request int, missing boolean, kept bytea, kept_ids text[], kept_sequences bigint[])
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM penstock.confirm(p_now);
    RETURN QUERY
        SELECT r.number::int, r.partition IS NULL, o.results, o.message_ids, o.sequences
          FROM unnest(p_keys, p_partitions) WITH ORDINALITY r(key, partition, number)
          LEFT JOIN LATERAL (
              SELECT k.* FROM penstock.append_outcome k WHERE k.key = r.key AND k.expires_at > p_now OFFSET 0) o ON true
         WHERE r.key <> ALL (p_fresh);
END $$;

-- Choose visible messages of a queue with groups, fairly: of groups with fewer messages in flight first, each message
-- chosen counting for the next of its group; a message without a group always counts as one of an idle group; then the
-- older one first. The work is bounded: 100 groups are considered (other ones each time, if there are more), up to 500 in
-- flight are told apart, and messages without a group are looked for among the 1000 oldest.
CREATE FUNCTION penstock.fair_choice(p_partition int, p_now bigint, p_floor bigint, p_count int) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_start bigint := hashtextextended(random()::text, 0);
    v_tenants bigint[];
BEGIN
    v_tenants := penstock.tenants(p_partition, v_start, 100);
    IF cardinality(v_tenants) < 100 THEN
        v_tenants := v_tenants || ARRAY(
            SELECT t FROM unnest(penstock.tenants(p_partition, NULL, 100)) t
             WHERE t < v_start LIMIT 100 - cardinality(v_tenants));
    END IF;
    RETURN ARRAY(
        SELECT c.position FROM (
            SELECT h.position, h.visible_at, t.in_flight + h.number - 1 AS load
              FROM (SELECT u.tenant,
                           (SELECT count(*) FROM (
                               SELECT FROM penstock.message f
                                WHERE f.partition = p_partition AND f.tenant = u.tenant AND f.visible_at > p_now
                                  AND f.receipt > 0
                                LIMIT 500) s) AS in_flight
                      FROM unnest(v_tenants) u(tenant)) t
             CROSS JOIN LATERAL (
                   SELECT m.position, m.visible_at, row_number() OVER (ORDER BY m.visible_at, m.position) AS number
                     FROM penstock.message m
                    WHERE m.partition = p_partition AND m.tenant = t.tenant
                      AND m.visible_at <= p_now AND m.visible_at >= p_floor
                    ORDER BY m.visible_at, m.position LIMIT p_count) h
            UNION ALL
            SELECT o.position, o.visible_at, 0
              FROM (SELECT m.position, m.visible_at, m.tenant FROM penstock.message m
                     WHERE m.partition = p_partition AND m.visible_at <= p_now AND m.visible_at >= p_floor
                     ORDER BY m.visible_at, m.position LIMIT 1000) o
             WHERE o.tenant IS NULL) c
         ORDER BY c.load, c.visible_at, c.position
         LIMIT p_count);
END $$;

-- The groups of a partition, from one on, found by leaping over the messages of each.
CREATE FUNCTION penstock.tenants(p_partition int, p_from bigint, p_max int) RETURNS bigint[] LANGUAGE sql STABLE AS $$
    WITH RECURSIVE found AS (
        (SELECT m.tenant FROM penstock.message m
          WHERE m.partition = p_partition AND m.tenant >= coalesce(p_from, -9223372036854775808)
          ORDER BY m.tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT m.tenant FROM penstock.message m
                 WHERE m.partition = p_partition AND m.tenant > f.tenant ORDER BY m.tenant LIMIT 1)
          FROM found f WHERE f.tenant IS NOT NULL)
    SELECT ARRAY(SELECT tenant FROM found WHERE tenant IS NOT NULL LIMIT p_max)
$$;

-- Take away visible messages that no lease may deliver: expired ones, and dead letters, which go to their queue. Looks at
-- the candidates of a lease and at the 1000 oldest, since such messages tend to come together.
CREATE FUNCTION penstock.evict(
    p_partition int, p_now bigint, p_floor bigint, p_horizon bigint, p_receives_max int, p_dead_letter_partition int,
    p_source text, p_candidates bigint[], OUT moved int
) LANGUAGE plpgsql AS $$
DECLARE
    v_positions bigint[];
BEGIN
    v_positions := ARRAY(
        SELECT o.position
          FROM (SELECT m.position, m.sent_at, m.receive_count FROM penstock.message m
                 WHERE m.partition = p_partition AND m.visible_at <= p_now AND m.visible_at >= p_floor
                 ORDER BY m.visible_at, m.position LIMIT 1000) o
         WHERE o.sent_at <= p_horizon OR o.receive_count >= p_receives_max);
    WITH doomed AS MATERIALIZED (
        SELECT m.position, m.visible_at, m.sent_at <= p_horizon AS expired FROM penstock.message m
         WHERE m.partition = p_partition AND m.position = ANY (v_positions || p_candidates) AND m.visible_at <= p_now
           AND (m.sent_at <= p_horizon OR m.receive_count >= p_receives_max)
           FOR UPDATE SKIP LOCKED),
    expired AS (
        DELETE FROM penstock.message m USING doomed d
         WHERE m.partition = p_partition AND m.position = d.position AND d.expired RETURNING m.position),
    bodies AS (DELETE FROM penstock.body b USING expired e WHERE b.position = e.position),
    dead AS (
        UPDATE penstock.message m
           SET partition = p_dead_letter_partition, receipt = m.receipt + 1, receive_count = 0, visible_at = p_now,
               leased_at = NULL, first_received_at = NULL, dead_letter_source = p_source
          FROM doomed d WHERE m.partition = p_partition AND m.position = d.position AND NOT d.expired RETURNING 1)
    SELECT count(*) INTO moved FROM dead;
END $$;

CREATE FUNCTION penstock.lease(
    p_pinned bigint,
    p_window bigint,
    p_in_flight_max int,
    -- one element for each request, sorted by queue
    p_keys bytea[],
    p_known boolean[],                          -- whether an outcome may be there under the key
    p_queues int[], p_counts int[], p_lease bigint[], p_retention bigint[],
    p_receives_max int[], p_dead_letter_arn text[], p_arn text[],
    p_floor_partition int[], p_floor bigint[],  -- no message of that partition is visible from before the floor
    p_exact boolean[]                           -- whether to count what is in flight
) RETURNS TABLE (
    request int,
    -- of a message that was leased
    "position" bigint, receipt int, receive_count int, sent_at bigint, first_received_at bigint, dead_letter_source text,
    message_id text, body text, attributes bytea, sender text, group_name text, deduplication_id text,
    -- of the request as a whole, in a row without a position that comes after those of its messages
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
    v_in_flight int;
    v_left int;
    v_receives_max int;
    v_dead_letter record;
    v_fair boolean;
    v_candidates bigint[];
    v_doomed boolean;
    v_moved int;
    v_count int;
BEGIN
    -- Requests with one key take turns, so that the second finds the outcome of the first.
    PERFORM pg_advisory_xact_lock(k.hash) FROM (
        SELECT DISTINCT hashtextextended(encode(r.key, 'hex'), 1) AS hash FROM unnest(p_keys, p_known) r(key, known)
         WHERE r.known ORDER BY 1 OFFSET 0) k;
    v_now := penstock.now_ms(p_pinned);
    FOR i IN 1 .. cardinality(p_queues) LOOP
        request := i; missing := false; in_flight := NULL; moved := 0; dead_letter_queue := NULL; next_in := NULL;
        v_partition := (SELECT q.partition FROM penstock.queue q WHERE q.id = p_queues[i] AND NOT q.fifo);
        partition := v_partition;
        IF v_partition IS NULL THEN
            missing := true; RETURN NEXT; CONTINUE;
        END IF;
        v_floor := CASE WHEN p_floor_partition[i] = v_partition THEN p_floor[i] ELSE 0 END;
        v_horizon := v_now - p_retention[i];
        v_left := p_counts[i];

        IF p_known[i] THEN
            RETURN QUERY SELECT i, k.*, NULL::boolean, NULL::int, NULL::int, NULL::int, NULL::int, NULL::bigint
                FROM penstock.lease_again(v_partition, p_keys[i], v_now, v_horizon, p_lease[i]) k;
            IF FOUND THEN
                RETURN NEXT; CONTINUE;
            END IF;
        END IF;

        IF p_exact[i] THEN
            -- Nodes count one after the other, or each of them would give away the same room.
            PERFORM pg_advisory_xact_lock(1, v_partition);
            v_now := penstock.now_ms(p_pinned);
            v_horizon := v_now - p_retention[i];
            v_in_flight := (SELECT count(*) FROM (
                SELECT FROM penstock.message m
                 WHERE m.partition = v_partition AND m.visible_at > v_now AND m.receipt > 0 AND m.sent_at > v_horizon
                 LIMIT p_in_flight_max) s);
            in_flight := v_in_flight;
            v_left := least(v_left, p_in_flight_max - v_in_flight);
            IF v_left <= 0 THEN
                RETURN NEXT; CONTINUE;
            END IF;
        END IF;

        SELECT q.id, q.partition INTO v_dead_letter FROM penstock.queue q
         WHERE q.arn = p_dead_letter_arn[i] AND NOT q.fifo;
        v_receives_max := CASE WHEN FOUND THEN p_receives_max[i] END;
        v_fair := EXISTS (SELECT FROM penstock.message m WHERE m.partition = v_partition AND m.tenant IS NOT NULL);

        -- Choose and lock. What may not be delivered is taken away, and the choice is made again without it.
        v_moved := 0;
        FOR v_round IN 1 .. 20 LOOP
            v_candidates := '{}';
            v_doomed := false;
            IF v_fair THEN
                SELECT coalesce(array_agg(s.position ORDER BY s.number), '{}'),
                       coalesce(bool_or(s.sent_at <= v_horizon OR s.receive_count >= v_receives_max), false)
                  INTO v_candidates, v_doomed
                  FROM (SELECT c.number, m.position, m.sent_at, m.receive_count
                          FROM unnest(penstock.fair_choice(v_partition, v_now, v_floor, v_left)) WITH ORDINALITY
                               c(position, number)
                          JOIN penstock.message m ON m.partition = v_partition AND m.position = c.position
                         WHERE m.visible_at <= v_now
                           FOR UPDATE OF m SKIP LOCKED) s;
            END IF;
            -- Where others hold what is fair, anything is better than nothing.
            IF cardinality(v_candidates) < v_left THEN
                SELECT v_candidates || coalesce(array_agg(s.position ORDER BY s.visible_at, s.position), '{}'),
                       v_doomed OR coalesce(bool_or(s.sent_at <= v_horizon OR s.receive_count >= v_receives_max), false)
                  INTO v_candidates, v_doomed
                  FROM (SELECT m.position, m.visible_at, m.sent_at, m.receive_count FROM penstock.message m
                         WHERE m.partition = v_partition AND m.visible_at <= v_now AND m.visible_at >= v_floor
                           AND m.position <> ALL (v_candidates)
                         ORDER BY m.visible_at, m.position LIMIT v_left - cardinality(v_candidates)
                           FOR UPDATE SKIP LOCKED) s;
            END IF;
            -- Dead letters that are next in line go at once.
            IF v_receives_max IS NOT NULL AND NOT v_doomed AND v_round = 1 THEN
                v_doomed := coalesce((
                    SELECT bool_or(s.receive_count >= v_receives_max)
                      FROM (SELECT m.receive_count FROM penstock.message m
                             WHERE m.partition = v_partition AND m.visible_at <= v_now AND m.visible_at >= v_floor
                             ORDER BY m.visible_at, m.position LIMIT v_left + 10) s), false);
            END IF;
            EXIT WHEN NOT v_doomed;
            v_moved := v_moved + penstock.evict(
                v_partition, v_now, v_floor, v_horizon, v_receives_max, v_dead_letter.partition, p_arn[i], v_candidates);
        END LOOP;
        moved := v_moved;
        dead_letter_queue := v_dead_letter.id;

        v_count := 0;
        IF v_candidates <> '{}' AND NOT v_doomed THEN
            RETURN QUERY
                WITH given AS (
                    UPDATE penstock.message m
                       SET receipt = m.receipt + 1, receive_count = m.receive_count + 1, visible_at = v_now + p_lease[i],
                           leased_at = v_now, first_received_at = coalesce(m.first_received_at, v_now)
                      FROM unnest(v_candidates) WITH ORDINALITY c(position, number)
                     WHERE m.partition = v_partition AND m.position = c.position
                    RETURNING c.number, m.position, m.receipt, m.receive_count, m.sent_at, m.first_received_at,
                              m.dead_letter_source),
                kept AS (
                    INSERT INTO penstock.lease_outcome (key, expires_at, positions, receipts)
                    SELECT p_keys[i], v_now + p_window, array_agg(g.position ORDER BY g.number),
                           array_agg(g.receipt ORDER BY g.number)
                      FROM given g)
                SELECT i, g.position, g.receipt, g.receive_count, g.sent_at, g.first_received_at, g.dead_letter_source,
                       b.message_id, b.body, b.attributes, b.sender, b.group_name, NULL::text,
                       NULL::boolean, NULL::int, NULL::int, NULL::int, NULL::int, NULL::bigint
                  FROM given g JOIN penstock.body b ON b.position = g.position
                 ORDER BY g.number;
            GET DIAGNOSTICS v_count = ROW_COUNT;
        END IF;
        IF v_doomed THEN
            next_in := 0;                       -- There was too much to take away: the next lease goes on.
        ELSIF v_count < v_left THEN
            next_in := least(
                (SELECT m.visible_at - v_now FROM penstock.message m
                  WHERE m.partition = v_partition AND m.visible_at > v_now ORDER BY m.visible_at LIMIT 1),
                -- What is visible but was not given is in others' hands, perhaps not for long.
                (SELECT 20 FROM penstock.message m
                  WHERE m.partition = v_partition AND m.visible_at <= v_now AND m.visible_at >= v_floor LIMIT 1));
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- The messages of an earlier lease that are still leased under the receipts that it gave, their leases renewed. Where none
-- is, the outcome is forgotten, and the key may name a new lease.
CREATE FUNCTION penstock.lease_again(p_partition int, p_key bytea, p_now bigint, p_horizon bigint, p_lease bigint)
RETURNS TABLE (
    "position" bigint, receipt int, receive_count int, sent_at bigint, first_received_at bigint, dead_letter_source text,
    message_id text, body text, attributes bytea, sender text, group_name text, deduplication_id text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH given AS (
            UPDATE penstock.message m SET visible_at = greatest(m.visible_at, p_now + p_lease)
              FROM penstock.lease_outcome o,
                   unnest(o.positions, o.receipts) WITH ORDINALITY c(position, receipt, number)
             WHERE o.key = p_key AND o.expires_at > p_now
               AND m.partition = p_partition AND m.position = c.position AND m.receipt = c.receipt
               AND m.visible_at > p_now AND m.sent_at > p_horizon
            RETURNING c.number, m.position, m.receipt, m.receive_count, m.sent_at, m.first_received_at, m.dead_letter_source)
        SELECT g.position, g.receipt, g.receive_count, g.sent_at, g.first_received_at, g.dead_letter_source,
               b.message_id, b.body, b.attributes, b.sender, b.group_name, b.deduplication_id
          FROM given g JOIN penstock.body b ON b.position = g.position
         ORDER BY g.number;
    IF NOT FOUND THEN
        DELETE FROM penstock.lease_outcome o WHERE o.key = p_key;
    END IF;
END $$;

-- Delete by receipt; returns the queues that are missing. Entries are sorted, so that calls never wait in a circle.
CREATE FUNCTION penstock.delete(p_queues int[], p_positions bigint[], p_receipts int[]) RETURNS int[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
    WITH gone AS (
        DELETE FROM penstock.message m
         USING unnest(p_queues, p_positions, p_receipts) u(queue, position, receipt)
          JOIN penstock.queue q ON q.id = u.queue
         WHERE m.partition = q.partition AND m.position = u.position AND m.receipt = u.receipt
        RETURNING m.position)
    DELETE FROM penstock.body b USING gone g WHERE b.position = g.position;
    RETURN ARRAY(
        SELECT DISTINCT u.queue FROM unnest(p_queues) u(queue)
         WHERE NOT EXISTS (SELECT FROM penstock.queue q WHERE q.id = u.queue));
END $$;

-- Change visibilities. Codes: 0 done, 1 done and visible sooner than before, 2 not leased, 3 gone, 4 past the longest
-- lease, 5 no such queue. The codes are kept under the key, since a repetition finds the changes made. A message that is
-- named several times has its changes in rounds, each upon the one before.
CREATE FUNCTION penstock.change_visibility(
    p_pinned bigint, p_window bigint, p_lease_max bigint, p_key bytea, p_repeated boolean,
    p_queues int[], p_positions bigint[], p_receipts int[], p_lease bigint[], p_retention bigint[], p_round int[]
) RETURNS int[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_now bigint;
    v_codes int[];
BEGIN
    IF p_repeated THEN
        v_codes := penstock.kept_codes(p_key);
        IF v_codes IS NOT NULL THEN
            RETURN v_codes;
        END IF;
    END IF;
    -- The rows are locked in order, and judged as they are then.
    PERFORM FROM unnest(p_queues, p_positions) u(queue, position) JOIN penstock.queue q ON q.id = u.queue
            CROSS JOIN LATERAL (
                SELECT FROM penstock.message m WHERE m.partition = q.partition AND m.position = u.position FOR UPDATE) m;
    v_now := penstock.now_ms(p_pinned);
    v_codes := array_fill(NULL::int, ARRAY[cardinality(p_queues)]);
    FOR v_round IN 1 .. (SELECT max(r) FROM unnest(p_round) r) LOOP
        v_codes := ARRAY(
            SELECT CASE WHEN u.round <> v_round THEN u.code
                        WHEN q.id IS NULL THEN 5
                        WHEN m.position IS NULL OR m.sent_at <= v_now - u.retention THEN 3
                        WHEN m.receipt <> u.receipt OR m.visible_at <= v_now THEN 2
                        WHEN v_now + u.lease > m.leased_at + p_lease_max THEN 4
                        WHEN v_now + u.lease < m.visible_at THEN 1
                        ELSE 0 END
              FROM unnest(p_queues, p_positions, p_receipts, p_lease, p_retention, p_round, v_codes) WITH ORDINALITY
                   u(queue, position, receipt, lease, retention, round, code, number)
              LEFT JOIN penstock.queue q ON q.id = u.queue
              LEFT JOIN penstock.message m ON m.partition = q.partition AND m.position = u.position
             ORDER BY u.number);
        UPDATE penstock.message m SET visible_at = v_now + u.lease
          FROM unnest(p_queues, p_positions, p_lease, p_round, v_codes) u(queue, position, lease, round, code)
          JOIN penstock.queue q ON q.id = u.queue
         WHERE u.round = v_round AND u.code <= 1 AND m.partition = q.partition AND m.position = u.position;
    END LOOP;
    PERFORM penstock.keep_codes(p_key, v_now + p_window, v_codes);
    RETURN v_codes;
END $$;

CREATE FUNCTION penstock.kept_codes(p_key bytea) RETURNS int[] LANGUAGE sql AS $$
    SELECT string_to_array(encode(o.result, 'escape'), ',')::int[] FROM penstock.work_outcome o WHERE o.key = p_key
$$;

CREATE FUNCTION penstock.keep_codes(p_key bytea, p_expires_at bigint, p_codes int[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO penstock.work_outcome (key, expires_at, result)
    VALUES (p_key, p_expires_at, decode(array_to_string(p_codes, ','), 'escape'))
$$;

-- Undo leases. Returns the code of each entry: 0 undone, 1 passed over, 5 no such queue.
CREATE FUNCTION penstock.release(p_pinned bigint, p_queues int[], p_positions bigint[], p_receipts int[]) RETURNS int[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_now bigint;
    v_codes int[];
BEGIN
    PERFORM FROM unnest(p_queues, p_positions) u(queue, position) JOIN penstock.queue q ON q.id = u.queue
            CROSS JOIN LATERAL (
                SELECT FROM penstock.message m WHERE m.partition = q.partition AND m.position = u.position FOR UPDATE) m;
    v_now := penstock.now_ms(p_pinned);
    v_codes := ARRAY(
        SELECT CASE WHEN q.id IS NULL THEN 5 WHEN m.receipt = u.receipt THEN 0 ELSE 1 END
          FROM unnest(p_queues, p_positions, p_receipts) WITH ORDINALITY u(queue, position, receipt, number)
          LEFT JOIN penstock.queue q ON q.id = u.queue
          LEFT JOIN penstock.message m ON m.partition = q.partition AND m.position = u.position
         ORDER BY u.number);
    UPDATE penstock.message m
       SET visible_at = v_now, receipt = m.receipt + 1, receive_count = m.receive_count - 1, leased_at = NULL,
           first_received_at = CASE WHEN m.receive_count > 1 THEN m.first_received_at END
      FROM unnest(p_queues, p_positions, v_codes) u(queue, position, code) JOIN penstock.queue q ON q.id = u.queue
     WHERE u.code = 0 AND m.partition = q.partition AND m.position = u.position;
    RETURN v_codes;
END $$;
