-- A queue in the style of pgmq, written for comparison: one table, one function call for each message operation, and
-- each call a transaction of its own. It is made in a schema of the benchmark's own, which is the search path.
-- pgmq takes the queue's name as an argument and plans each call anew; one fixed table is a little quicker, to its favour.

CREATE TABLE queue (
    msg_id      bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    read_ct     integer     NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    vt          timestamptz NOT NULL,
    message     jsonb       NOT NULL
);
CREATE INDEX queue_vt ON queue (vt);

CREATE FUNCTION send(body jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    sent bigint;
BEGIN
    INSERT INTO queue (vt, message) VALUES (clock_timestamp(), body) RETURNING msg_id INTO sent;
    RETURN sent;
END
$$;

CREATE FUNCTION send_batch(bodies jsonb[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
        INSERT INTO queue (vt, message) SELECT clock_timestamp(), unnest(bodies) RETURNING msg_id;
END
$$;

-- Oldest first, passing over what is leased (vt in the future) and over what another call is leasing now.
CREATE FUNCTION read(vt_seconds integer, qty integer) RETURNS SETOF queue LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
        WITH next AS (
            SELECT q.msg_id FROM queue AS q
            WHERE q.vt <= clock_timestamp()
            ORDER BY q.msg_id
            LIMIT qty
            FOR UPDATE SKIP LOCKED
        )
        UPDATE queue AS q
        SET vt = clock_timestamp() + make_interval(secs => vt_seconds), read_ct = q.read_ct + 1
        FROM next
        WHERE q.msg_id = next.msg_id
        RETURNING q.*;
END
$$;

CREATE FUNCTION delete(id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM queue WHERE msg_id = id;
    RETURN FOUND;
END
$$;

CREATE FUNCTION delete_batch(ids bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY DELETE FROM queue WHERE msg_id = ANY (ids) RETURNING msg_id;
END
$$;
