-- Standard queues: each function does the work of many callers in one call, and so in one transaction and one round trip.
--
-- The planner is told to walk indexes: its guesses are made while tables are empty, and outlive their growth. For the same
-- reason messages that are known by position are found by `position = ANY (...)`, or joined to a list that has their
-- partition too: given the partition apart from it, the planner may walk over the whole partition instead.

-- The partitions of queues, NULL for one that is missing.
CREATE OR REPLACE FUNCTION penstock.partitions_of(p_queues int[], p_fifo boolean) RETURNS int[] LANGUAGE sql AS $$
    SELECT ARRAY(
        SELECT (SELECT q.partition FROM penstock.queue q WHERE q.id = u.queue AND q.fifo = p_fifo)
          FROM unnest(p_queues) WITH ORDINALITY u(queue, number) ORDER BY u.number)
$$;

CREATE OR REPLACE FUNCTION penstock.append(
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
    v_partitions := penstock.partitions_of(p_queues, false);
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
CREATE OR REPLACE FUNCTION penstock.keep_append_outcomes(
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
CREATE OR REPLACE FUNCTION penstock.kept_append_outcomes(p_now bigint, p_keys bytea[], p_partitions int[], p_fresh bytea[])
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
-- older one first. The work is bounded. Up to 1000 visible messages are all considered; of more, the first of 100 groups
-- (other groups each time, if there are more), and of those without a group the ones among the 2000 oldest. Up to 500
-- messages in flight are told apart.
CREATE OR REPLACE FUNCTION penstock.fair_choice(
    p_partition int, p_now bigint, p_floor bigint, p_returned_floor bigint, p_count int
) RETURNS bigint[]
LANGUAGE plpgsql SET enable_hashjoin = on AS $$
DECLARE
    v_positions bigint[];
    v_tenants bigint[];
    v_start bigint := hashtextextended(random()::text, 0);
BEGIN
    SELECT array_agg(o.position), array_agg(o.tenant) INTO v_positions, v_tenants
      FROM ((SELECT m.position, m.tenant FROM penstock.message m
              WHERE m.due_partition = p_partition AND m.returned
                AND m.visible_at <= p_now AND m.visible_at >= p_returned_floor
              ORDER BY m.visible_at, m.position LIMIT 1000)
            UNION ALL
            (SELECT m.position, m.tenant FROM penstock.message m
              WHERE m.due_partition = p_partition AND NOT m.returned
                AND m.visible_at <= p_now AND m.visible_at >= p_floor
              ORDER BY m.visible_at, m.position LIMIT 1000)) o;
    IF cardinality(v_positions) >= 1000 THEN
        SELECT array_agg(c.position), array_agg(c.tenant) INTO v_positions, v_tenants
          FROM (SELECT h.position, t.tenant
                  FROM unnest(penstock.tenants(p_partition, v_start, 100)) t(tenant)
                 CROSS JOIN LATERAL (
                       (SELECT m.position FROM penstock.message m
                         WHERE m.partition = p_partition AND m.tenant = t.tenant AND m.returned
                           AND m.visible_at <= p_now AND m.visible_at >= p_returned_floor
                         ORDER BY m.visible_at, m.position LIMIT p_count)
                       UNION ALL
                       (SELECT m.position FROM penstock.message m
                         WHERE m.partition = p_partition AND m.tenant = t.tenant AND NOT m.returned
                           AND m.visible_at <= p_now AND m.visible_at >= p_floor
                         ORDER BY m.visible_at, m.position LIMIT p_count)) h
                UNION ALL
                SELECT u.position, NULL FROM unnest(v_positions, v_tenants) u(position, tenant) WHERE u.tenant IS NULL) c;
    END IF;
    RETURN ARRAY(
        WITH visible AS MATERIALIZED (
            SELECT u.*, row_number() OVER (PARTITION BY u.tenant ORDER BY u.position) AS rank
              FROM unnest(v_positions, v_tenants) u(position, tenant)),
        busy AS MATERIALIZED (
            SELECT t.tenant, (SELECT count(*) FROM (
                       SELECT FROM penstock.message f
                        WHERE f.partition = p_partition AND f.tenant = t.tenant AND f.returned AND f.visible_at > p_now
                        ORDER BY f.visible_at LIMIT 500) s) AS in_flight
              FROM (SELECT DISTINCT v.tenant FROM visible v WHERE v.tenant IS NOT NULL) t)
        SELECT v.position FROM visible v LEFT JOIN busy b ON b.tenant = v.tenant
         ORDER BY coalesce(b.in_flight + v.rank - 1, 0), v.position LIMIT p_count);
END $$;

-- Groups of a partition, from one on and round, found by leaping over the messages of each.
CREATE OR REPLACE FUNCTION penstock.tenants(p_partition int, p_from bigint, p_max int) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_tenants bigint[] := '{}';
    v_tenant bigint := p_from;
    v_round boolean := false;
BEGIN
    WHILE cardinality(v_tenants) < p_max LOOP
        v_tenant := (SELECT m.tenant FROM penstock.message m WHERE m.partition = p_partition AND m.tenant > v_tenant
                      ORDER BY m.tenant LIMIT 1);
        IF v_tenant IS NULL AND NOT v_round THEN
            v_round := true;
            v_tenant := (SELECT m.tenant FROM penstock.message m WHERE m.partition = p_partition AND m.tenant IS NOT NULL
                          ORDER BY m.tenant LIMIT 1);
        END IF;
        EXIT WHEN v_tenant IS NULL OR v_tenant = ANY (v_tenants);
        v_tenants := v_tenants || v_tenant;
    END LOOP;
    RETURN v_tenants;
END $$;

-- Take away visible messages that no lease may deliver: expired ones, and dead letters, which go to their queue. Looks at
-- the candidates of a lease and at the 1000 oldest of those that came back and of those never received, since such messages
-- tend to come together.
CREATE OR REPLACE FUNCTION penstock.evict(
    p_partition int, p_now bigint, p_floor bigint, p_returned_floor bigint, p_horizon bigint, p_receives_max int,
    p_dead_letter_partition int, p_source text, p_candidates bigint[], OUT moved int
) LANGUAGE plpgsql AS $$
DECLARE
    v_positions bigint[];
BEGIN
    v_positions := ARRAY(
        SELECT o.position
          FROM ((SELECT m.position, m.sent_at, m.receive_count FROM penstock.message m
                  WHERE m.due_partition = p_partition AND m.returned
                    AND m.visible_at <= p_now AND m.visible_at >= p_returned_floor
                  ORDER BY m.visible_at, m.position LIMIT 1000)
                UNION ALL
                (SELECT m.position, m.sent_at, m.receive_count FROM penstock.message m
                  WHERE m.due_partition = p_partition AND NOT m.returned
                    AND m.visible_at <= p_now AND m.visible_at >= p_floor
                  ORDER BY m.visible_at, m.position LIMIT 1000)) o
         WHERE o.sent_at <= p_horizon OR o.receive_count >= p_receives_max);
    WITH doomed AS MATERIALIZED (
        SELECT m.position, m.visible_at, m.sent_at <= p_horizon AS expired FROM penstock.message m
         WHERE m.partition = p_partition AND m.position = ANY (v_positions || p_candidates) AND m.visible_at <= p_now
           AND (m.sent_at <= p_horizon OR m.receive_count >= p_receives_max)
           FOR UPDATE SKIP LOCKED),
    expired AS (
        DELETE FROM penstock.message m
         WHERE m.partition = p_partition AND m.position = ANY (ARRAY(SELECT d.position FROM doomed d WHERE d.expired))
        RETURNING m.position),
    bodies AS (DELETE FROM penstock.body b USING expired e WHERE b.position = e.position),
    dead AS (
        UPDATE penstock.message m
           SET partition = p_dead_letter_partition, receipt = m.receipt + 1, receive_count = 0, visible_at = p_now,
               received_elsewhere = m.receive_count + coalesce(m.received_elsewhere, 0), leased_at = NULL,
               first_received_at = NULL, dead_letter_source = p_source
         WHERE m.partition = p_partition AND m.position = ANY (ARRAY(SELECT d.position FROM doomed d WHERE NOT d.expired))
        RETURNING 1)
    SELECT count(*) INTO moved FROM dead;
END $$;

-- Leases with one key take turns, so that the second finds the outcome of the first; and so do the attempts at one batch.
-- What several leases do together they do without looking for outcomes one by one: if any has one, be it expired, they are
-- all refused, and are each done again by itself.
CREATE OR REPLACE FUNCTION penstock.take_turns(p_batch bytea, p_keys bytea[], p_asked boolean[], p_again boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM penstock.take_turn(p_batch);
    PERFORM pg_advisory_xact_lock(k.hash) FROM (
        SELECT DISTINCT hashtextextended(encode(u.key, 'hex'), 1) AS hash FROM unnest(p_keys, p_asked) u(key, asked)
         WHERE u.asked ORDER BY 1 OFFSET 0) k;
    IF NOT p_again AND EXISTS (SELECT FROM penstock.lease_outcome o WHERE o.key = ANY (p_keys)) THEN
        RAISE unique_violation USING MESSAGE = 'a lease with this attempt key was made before';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION penstock.lease(
    p_pinned bigint,
    p_window bigint,
    p_in_flight_max int,
    p_batch bytea,                              -- names the call, the same on each attempt at it
    -- one element for each lease, sorted by request
    p_keys bytea[],
    p_asked boolean[],                          -- whether the caller gave the key, and may have used it before
    p_retries int[],                            -- which retry of the caller's it is; NULL where the key is our own
    p_request int[], p_shares int[],            -- whose request it is part of, and how many messages it asks for
    p_again boolean,                            -- look for outcomes; then each request is one lease
    -- one element for each request, sorted by queue
    p_queues int[], p_counts int[], p_lease bigint[], p_retention bigint[],
    p_receives_max int[], p_dead_letter_arn text[], p_arn text[],
    p_floor_partition int[], p_floor bigint[],  -- no message of that partition is visible from before its floor: two for
                                                -- each, of messages never received and of those that came back
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
    v_returned_floor bigint;
    v_horizon bigint;
    v_in_flight int;
    v_left int;
    v_receives_max int;
    v_dead_letter int;
    v_dead_letter_partition int;
    v_fair boolean;
    v_fairly bigint[];
    v_window int;
    v_returned bigint[];
    v_candidates bigint[];
    v_doomed boolean;
    v_moved int;
    v_count int;
    v_soon bigint;
BEGIN
    PERFORM penstock.take_turns(p_batch, p_keys, p_asked, p_again);
    v_now := penstock.now_ms(p_pinned);
    FOR i IN 1 .. cardinality(p_queues) LOOP
        request := i; missing := false; in_flight := NULL; moved := 0; dead_letter_queue := NULL; next_in := NULL;
        v_partition := (SELECT q.partition FROM penstock.queue q WHERE q.id = p_queues[i] AND NOT q.fifo);
        partition := v_partition;
        IF v_partition IS NULL THEN
            missing := true; RETURN NEXT; CONTINUE;
        END IF;
        v_floor := CASE WHEN p_floor_partition[i] = v_partition THEN p_floor[i][1] ELSE 0 END;
        v_returned_floor := CASE WHEN p_floor_partition[i] = v_partition THEN p_floor[i][2] ELSE 0 END;
        v_horizon := v_now - p_retention[i];
        v_left := p_counts[i];

        IF p_again THEN
            RETURN QUERY SELECT i, k.*, NULL::boolean, NULL::int, NULL::int, NULL::int, NULL::int, NULL::bigint
                FROM penstock.lease_again(
                    v_partition, p_keys[i], v_now, v_horizon, p_lease[i], p_retries[i]) k;
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
                 WHERE m.due_partition = v_partition AND m.returned AND m.visible_at > v_now AND m.sent_at > v_horizon
                 ORDER BY m.visible_at LIMIT p_in_flight_max) s);
            in_flight := v_in_flight;
            v_left := least(v_left, p_in_flight_max - v_in_flight);
            IF v_left <= 0 THEN
                RETURN NEXT; CONTINUE;
            END IF;
        END IF;

        v_receives_max := NULL;
        IF p_dead_letter_arn[i] IS NOT NULL THEN
            SELECT q.id, q.partition INTO v_dead_letter, v_dead_letter_partition FROM penstock.queue q
             WHERE q.arn = p_dead_letter_arn[i] AND NOT q.fifo;
            v_receives_max := CASE WHEN FOUND THEN p_receives_max[i] END;
        END IF;
        -- Choose and lock. What may not be delivered is taken away, and the choice is made again without it.
        v_moved := 0;
        FOR v_round IN 1 .. 20 LOOP
            -- What came back goes before what was never received, the older first: among the first to come back, and among
            -- more of them where those are in others' hands. Only what is chosen is locked.
            v_candidates := '{}'; v_doomed := false; v_fair := false;
            FOREACH v_window IN ARRAY ARRAY[v_left + 100, v_left + 10000] LOOP
                v_returned := ARRAY(
                    SELECT r.position
                      FROM (SELECT m.position FROM penstock.message m
                             WHERE m.due_partition = v_partition AND m.returned
                               AND m.visible_at <= v_now AND m.visible_at >= v_returned_floor
                             ORDER BY m.visible_at, m.position LIMIT v_window) r
                     ORDER BY r.position);
                EXIT WHEN v_returned = '{}';
                SELECT coalesce(array_agg(s.position ORDER BY s.position), '{}'),
                       coalesce(bool_or(s.sent_at <= v_horizon OR s.receive_count >= v_receives_max), false),
                       coalesce(bool_or(s.tenant IS NOT NULL), false)
                  INTO v_candidates, v_doomed, v_fair
                  FROM (SELECT m.* FROM unnest(v_returned) u(position)
                         CROSS JOIN LATERAL (
                               SELECT m.position, m.sent_at, m.receive_count, m.tenant FROM penstock.message m
                                WHERE m.partition = v_partition AND m.position = u.position AND m.visible_at <= v_now
                                  FOR UPDATE SKIP LOCKED) m
                         LIMIT v_left) s;
                EXIT WHEN cardinality(v_candidates) = v_left OR cardinality(v_returned) < v_window;
            END LOOP;
            IF cardinality(v_candidates) < v_left THEN
                SELECT v_candidates || coalesce(array_agg(s.position ORDER BY s.visible_at, s.position), '{}'),
                       v_doomed OR coalesce(bool_or(s.sent_at <= v_horizon), false),
                       v_fair OR coalesce(bool_or(s.tenant IS NOT NULL), false)
                  INTO v_candidates, v_doomed, v_fair
                  FROM (SELECT m.position, m.visible_at, m.sent_at, m.tenant FROM penstock.message m
                         WHERE m.due_partition = v_partition AND NOT m.returned
                           AND m.visible_at <= v_now AND m.visible_at >= v_floor
                         ORDER BY m.visible_at, m.position LIMIT v_left - cardinality(v_candidates)
                           FOR UPDATE SKIP LOCKED) s;
            END IF;
            -- The oldest are the fair choice if none of them has a group. Else they only stand in for what is fair but in
            -- others' hands.
            IF v_fair THEN
                v_fairly := penstock.fair_choice(v_partition, v_now, v_floor, v_returned_floor, v_left);
                SELECT (coalesce(array_agg(s.position ORDER BY array_position(v_fairly, s.position)), '{}')
                        || ARRAY(SELECT c FROM unnest(v_candidates) c WHERE c <> ALL (v_fairly)))[:v_left],
                       v_doomed OR coalesce(bool_or(s.sent_at <= v_horizon OR s.receive_count >= v_receives_max), false)
                  INTO v_candidates, v_doomed
                  FROM (SELECT m.position, m.sent_at, m.receive_count FROM penstock.message m
                         WHERE m.partition = v_partition AND m.position = ANY (v_fairly) AND m.visible_at <= v_now
                           FOR UPDATE SKIP LOCKED) s;
            END IF;
            -- Dead letters that are next in line go at once.
            IF v_receives_max IS NOT NULL AND NOT v_doomed AND v_round = 1 THEN
                v_doomed := coalesce((
                    SELECT bool_or(s.receive_count >= v_receives_max)
                      FROM (SELECT m.receive_count FROM penstock.message m
                             WHERE m.due_partition = v_partition AND m.returned
                               AND m.visible_at <= v_now AND m.visible_at >= v_returned_floor
                             ORDER BY m.visible_at, m.position LIMIT v_left + 10) s), false);
            END IF;
            EXIT WHEN NOT v_doomed;
            v_moved := v_moved + penstock.evict(
                v_partition, v_now, v_floor, v_returned_floor, v_horizon, v_receives_max, v_dead_letter_partition, p_arn[i],
                v_candidates);
        END LOOP;
        moved := v_moved;
        IF v_moved > 0 THEN
            dead_letter_queue := v_dead_letter;
        END IF;

        v_count := 0;
        IF v_candidates <> '{}' AND NOT v_doomed THEN
            RETURN QUERY
                WITH given AS (
                    UPDATE penstock.message m
                       SET receipt = m.receipt + 1, receive_count = m.receive_count + 1, visible_at = v_now + p_lease[i],
                           leased_at = v_now, first_received_at = coalesce(m.first_received_at, v_now), holder = 0
                     WHERE m.partition = v_partition AND m.position = ANY (v_candidates)
                    RETURNING array_position(v_candidates, m.position) AS number, m.position, m.receipt,
                              m.receive_count + coalesce(m.received_elsewhere, 0) AS receive_count, m.sent_at,
                              m.first_received_at, m.dead_letter_source),
                kept AS (
                    INSERT INTO penstock.lease_outcome (key, expires_at, positions, receipts)
                    SELECT s.key, v_now + p_window, a.positions[s.upto - s.share + 1 : s.upto],
                           a.receipts[s.upto - s.share + 1 : s.upto]
                      FROM (SELECT array_agg(g.position ORDER BY g.number) AS positions,
                                   array_agg(g.receipt ORDER BY g.number) AS receipts FROM given g) a,
                           (SELECT u.key, u.share, sum(u.share) OVER (ORDER BY u.number)::int AS upto
                              FROM unnest(p_keys, p_shares, p_request) WITH ORDINALITY u(key, share, request, number)
                             WHERE u.request = i) s
                     WHERE s.upto - s.share < cardinality(a.positions))
                SELECT i, g.position, g.receipt, g.receive_count, g.sent_at, g.first_received_at, g.dead_letter_source,
                       b.message_id, b.body, b.attributes, b.sender, b.group_name, NULL::text,
                       NULL::boolean, NULL::int, NULL::int, NULL::int, NULL::int, NULL::bigint
                  FROM given g JOIN penstock.body b ON b.position = g.position
                 ORDER BY g.number;
            GET DIAGNOSTICS v_count = ROW_COUNT;
        END IF;
        -- Mostly it is no retry that leases.
        IF v_count > 0 AND 0 < ANY (p_retries) THEN
            UPDATE penstock.message m SET holder = u.retry
              FROM unnest(p_keys, p_retries, p_request) u(key, retry, request)
              JOIN penstock.lease_outcome o ON o.key = u.key
             WHERE u.request = i AND u.retry > 0 AND m.partition = v_partition AND m.position = ANY (o.positions);
        END IF;
        IF v_doomed THEN
            next_in := 0;                       -- There was too much to take away: the next lease goes on.
        ELSIF v_count < v_left THEN
            -- While time flows only the next second is looked at, and whoever finds nothing there looks again after it:
            -- what lies further on may be many rows that are dead, but kept by somebody's old snapshot.
            v_soon := CASE WHEN p_pinned IS NULL THEN v_now + 1000 ELSE 9223372036854775807 END;
            next_in := least(
                (SELECT m.visible_at - v_now FROM penstock.message m
                  WHERE m.due_partition = v_partition AND m.returned AND m.visible_at > v_now AND m.visible_at <= v_soon
                  ORDER BY m.visible_at LIMIT 1),
                (SELECT m.visible_at - v_now FROM penstock.message m
                  WHERE m.due_partition = v_partition AND NOT m.returned AND m.visible_at > v_now AND m.visible_at <= v_soon
                  ORDER BY m.visible_at LIMIT 1),
                -- What is visible but was not given is in others' hands, perhaps not for long.
                (SELECT 20 FROM penstock.message m
                  WHERE m.due_partition = v_partition AND m.returned
                    AND m.visible_at <= v_now AND m.visible_at >= v_returned_floor
                  ORDER BY m.visible_at LIMIT 1),
                (SELECT 20 FROM penstock.message m
                  WHERE m.due_partition = v_partition AND NOT m.returned
                    AND m.visible_at <= v_now AND m.visible_at >= v_floor
                  ORDER BY m.visible_at LIMIT 1),
                CASE WHEN p_pinned IS NULL THEN 1000 END);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- The messages of an earlier lease that are still leased under the receipts that it gave, their leases renewed. The retry is
-- their holder from now on, or nobody is if it may be the older request. Where none is still leased, the outcome is forgotten,
-- and the key may name a new lease.
CREATE OR REPLACE FUNCTION penstock.lease_again(
    p_partition int, p_key bytea, p_now bigint, p_horizon bigint, p_lease bigint, p_retry int)
RETURNS TABLE (
    "position" bigint, receipt int, receive_count int, sent_at bigint, first_received_at bigint, dead_letter_source text,
    message_id text, body text, attributes bytea, sender text, group_name text, deduplication_id text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_positions bigint[];
    v_receipts int[];
BEGIN
    SELECT o.positions, o.receipts INTO v_positions, v_receipts
      FROM penstock.lease_outcome o WHERE o.key = p_key AND o.expires_at > p_now;
    RETURN QUERY
        WITH given AS (
            UPDATE penstock.message m
               SET visible_at = greatest(m.visible_at, p_now + p_lease),
                   holder = CASE WHEN p_retry IS NULL THEN m.holder WHEN p_retry > m.holder THEN p_retry END
             WHERE m.partition = p_partition AND m.position = ANY (v_positions)
               AND m.receipt = v_receipts[array_position(v_positions, m.position)]
               AND m.visible_at > p_now AND m.sent_at > p_horizon
            RETURNING array_position(v_positions, m.position) AS number, m.position, m.receipt,
                      m.receive_count + coalesce(m.received_elsewhere, 0) AS receive_count, m.sent_at,
                      m.first_received_at, m.dead_letter_source)
        SELECT g.position, g.receipt, g.receive_count, g.sent_at, g.first_received_at, g.dead_letter_source,
               b.message_id, b.body, b.attributes, b.sender, b.group_name, b.deduplication_id
          FROM given g JOIN penstock.body b ON b.position = g.position
         ORDER BY g.number;
    IF NOT FOUND THEN
        DELETE FROM penstock.lease_outcome o WHERE o.key = p_key;
    END IF;
END $$;

-- Delete by any receipt that was given for a message; returns the queues that are missing. Entries are sorted, so that calls never wait in a circle. What is
-- gone already is a success too, and so must be as durable as if this call had deleted it.
CREATE OR REPLACE FUNCTION penstock.delete(p_queues int[], p_positions bigint[], p_receipts int[]) RETURNS int[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_partitions int[] := penstock.partitions_of(p_queues, false);
    v_deleted int;
BEGIN
    WITH gone AS (
        DELETE FROM penstock.message m
         USING unnest(v_partitions, p_positions, p_receipts) u(partition, position, receipt)
         WHERE m.partition = u.partition AND m.position = u.position AND m.receipt >= u.receipt
        RETURNING m.position)
    DELETE FROM penstock.body b USING gone g WHERE b.position = g.position;
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    IF v_deleted < cardinality(p_positions) THEN
        PERFORM penstock.confirm(penstock.now_ms(NULL));
    END IF;
    RETURN ARRAY(SELECT DISTINCT u.queue FROM unnest(p_queues, v_partitions) u(queue, partition) WHERE u.partition IS NULL);
END $$;

-- Change visibilities by any receipt that was given for a message. Codes: 0 done, 1 done and visible sooner than before,
-- 2 expired (on FIFO queues), 3 gone, 4 past the longest lease, 5 no such queue. The codes are kept under the key, since a repetition finds the changes made. A message that is
-- named several times has its changes in rounds, each upon the one before.
CREATE OR REPLACE FUNCTION penstock.change_visibility(
    p_pinned bigint, p_window bigint, p_lease_max bigint, p_key bytea, p_repeated boolean,
    p_queues int[], p_positions bigint[], p_receipts int[], p_lease bigint[], p_retention bigint[], p_round int[]
) RETURNS int[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_partitions int[] := penstock.partitions_of(p_queues, false);
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
    -- The rows are locked in order, and judged as they are then.
    PERFORM FROM unnest(v_partitions, p_positions) u(partition, position)
            CROSS JOIN LATERAL (
                SELECT FROM penstock.message m WHERE m.partition = u.partition AND m.position = u.position FOR UPDATE) m;
    v_now := penstock.now_ms(p_pinned);
    v_codes := array_fill(NULL::int, ARRAY[cardinality(p_queues)]);
    FOR v_round IN 1 .. (SELECT max(r) FROM unnest(p_round) r) LOOP
        v_codes := ARRAY(
            SELECT CASE WHEN u.round <> v_round THEN u.code
                        WHEN u.partition IS NULL THEN 5
                        WHEN m.position IS NULL OR m.receipt < u.receipt OR m.sent_at <= v_now - u.retention THEN 3
                        WHEN u.lease > 0 AND v_now + u.lease > m.leased_at + p_lease_max THEN 4
                        WHEN v_now + u.lease < m.visible_at THEN 1
                        ELSE 0 END
              FROM unnest(v_partitions, p_positions, p_receipts, p_lease, p_retention, p_round, v_codes) WITH ORDINALITY
                   u(partition, position, receipt, lease, retention, round, code, number)
              LEFT JOIN penstock.message m ON m.partition = u.partition AND m.position = u.position
             ORDER BY u.number);
        UPDATE penstock.message m SET visible_at = v_now + u.lease, holder = NULL
          FROM unnest(v_partitions, p_positions, p_lease, p_round, v_codes) u(partition, position, lease, round, code)
         WHERE u.round = v_round AND u.code <= 1 AND m.partition = u.partition AND m.position = u.position
           AND (u.lease > 0 OR m.visible_at > v_now);
    END LOOP;
    PERFORM penstock.keep_codes(p_key, v_now + p_window, v_codes);
    RETURN v_codes;
END $$;

CREATE OR REPLACE FUNCTION penstock.kept_codes(p_key bytea) RETURNS int[] LANGUAGE sql AS $$
    SELECT string_to_array(encode(o.result, 'escape'), ',')::int[] FROM penstock.work_outcome o WHERE o.key = p_key
$$;

CREATE OR REPLACE FUNCTION penstock.keep_codes(p_key bytea, p_expires_at bigint, p_codes int[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO penstock.work_outcome (key, expires_at, result)
    VALUES (p_key, p_expires_at, decode(array_to_string(p_codes, ','), 'escape'))
$$;

-- Undo leases, but for those that another request holds by now. Returns the code of each entry: 0 undone, 1 passed over,
-- 5 no such queue.
CREATE OR REPLACE FUNCTION penstock.release(
    p_pinned bigint, p_queues int[], p_positions bigint[], p_receipts int[], p_holders int[]
) RETURNS int[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_partitions int[] := penstock.partitions_of(p_queues, false);
    v_now bigint;
    v_codes int[];
BEGIN
    PERFORM FROM unnest(v_partitions, p_positions) u(partition, position)
            CROSS JOIN LATERAL (
                SELECT FROM penstock.message m WHERE m.partition = u.partition AND m.position = u.position FOR UPDATE) m;
    v_now := penstock.now_ms(p_pinned);
    v_codes := ARRAY(
        SELECT CASE WHEN u.partition IS NULL THEN 5 WHEN m.receipt = u.receipt AND m.holder = u.holder THEN 0 ELSE 1 END
          FROM unnest(v_partitions, p_positions, p_receipts, p_holders) WITH ORDINALITY
               u(partition, position, receipt, holder, number)
          LEFT JOIN penstock.message m ON m.partition = u.partition AND m.position = u.position
         ORDER BY u.number);
    UPDATE penstock.message m
       SET visible_at = v_now, receipt = m.receipt + 1, receive_count = m.receive_count - 1,
           first_received_at = CASE WHEN m.receive_count > 1 THEN m.first_received_at END
      FROM unnest(v_partitions, p_positions, v_codes) u(partition, position, code)
     WHERE u.code = 0 AND m.partition = u.partition AND m.position = u.position;
    RETURN v_codes;
END $$;
