-- Peeks: messages shown as they lie, without receiving them.

-- No partition has messages in both.
CREATE OR REPLACE VIEW penstock.any_message AS
    SELECT partition, position, receipt, receive_count + coalesce(received_elsewhere, 0) AS receive_count, visible_at,
           sent_at, first_received_at, dead_letter_source
      FROM penstock.message
     UNION ALL
    SELECT partition, position, receipt, receive_count + coalesce(received_elsewhere, 0) AS receive_count, visible_at,
           sent_at, first_received_at, dead_letter_source
      FROM penstock.fifo_message;

CREATE OR REPLACE FUNCTION penstock.state_of(p_visible_at bigint, p_receipt int, p_now bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT CASE WHEN p_visible_at <= p_now THEN 'visible' WHEN p_receipt > 0 THEN 'leased' ELSE 'delayed' END $$;

-- STABLE: all of it sees one snapshot, and none of it can write.
CREATE OR REPLACE FUNCTION penstock.peek(
    p_pinned bigint, p_queue int, p_retention bigint,
    p_state text,                               -- NULL: all
    p_after bigint, p_limit int,
    p_rows_max int, p_bytes_max bigint          -- how many messages to look at, and how much of them to show
) RETURNS TABLE (
    state text,
    -- of a message
    "position" bigint, receipt int, receive_count int, sent_at bigint, first_received_at bigint, dead_letter_source text,
    message_id text, body text, attributes bytea, sender text, group_name text, deduplication_id text, visible_at bigint,
    -- of the whole, in a row without a position that comes last
    missing boolean, reached bigint)            -- reached: go on after this position; NULL: there was nothing beyond
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := penstock.now_ms(p_pinned);
    v_partition int := (SELECT q.partition FROM penstock.queue q WHERE q.id = p_queue);
    v_positions bigint[];
    v_shown bigint[];
    v_scanned int;
    v_last bigint;
BEGIN
    missing := v_partition IS NULL;
    IF missing THEN
        RETURN NEXT; RETURN;
    END IF;
    SELECT array_agg(s.position ORDER BY s.position) FILTER (WHERE s.wanted), count(*), max(s.position)
      INTO v_positions, v_scanned, v_last
      FROM (SELECT m.position,
                   m.sent_at > v_now - p_retention
                   AND (p_state IS NULL OR p_state = penstock.state_of(m.visible_at, m.receipt, v_now)) AS wanted
              FROM penstock.any_message m
             WHERE m.partition = v_partition AND m.position > p_after
             ORDER BY m.position LIMIT p_rows_max) s;
    v_positions := coalesce(v_positions, '{}');
    -- Sizes are known without reading what is large.
    v_shown := ARRAY(
        SELECT t.position
          FROM (SELECT b.position,
                       sum(octet_length(b.body) + coalesce(octet_length(b.attributes), 0)) OVER (
                           ORDER BY b.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
                  FROM penstock.body b WHERE b.position = ANY (v_positions[1:p_limit])) t
         WHERE coalesce(t.bytes_before, 0) < p_bytes_max ORDER BY t.position);
    RETURN QUERY
        SELECT penstock.state_of(m.visible_at, m.receipt, v_now), m.position, m.receipt, m.receive_count, m.sent_at,
               m.first_received_at, m.dead_letter_source, b.message_id, b.body, b.attributes, b.sender, b.group_name,
               b.deduplication_id, m.visible_at, NULL::boolean, NULL::bigint
          FROM penstock.any_message m JOIN penstock.body b ON b.position = m.position
         WHERE m.partition = v_partition AND m.position = ANY (v_shown)
         ORDER BY m.position;
    IF cardinality(v_shown) < cardinality(v_positions) OR cardinality(v_shown) = p_limit THEN
        reached := v_shown[cardinality(v_shown)];
    ELSIF v_scanned = p_rows_max THEN
        reached := v_last;
    END IF;
    RETURN NEXT;
END $$;
