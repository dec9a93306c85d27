-- Enqueueing in a user's own transaction. `enqueue_v1` and `enqueue_jobs_v1` are public: their names, arguments and answers do not
-- change; what would, becomes a `_v2` (docs/transactions.md). They run with the rights of Penstock's role, so that a user's role
-- needs none on any table, and nobody may call them until that is granted.
--
-- They check what is cheap to check, so that a mistake fails in the transaction that makes it. The rules themselves are in the
-- script that every enqueue goes through, which has the last word.

-- A UUID in the order of time (version 7).
CREATE OR REPLACE FUNCTION penstock.new_job_id() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_bytes bytea := overlay(uuid_send(gen_random_uuid())
                             PLACING substring(int8send(penstock.now_ms(NULL)) FROM 3) FROM 1 FOR 6);
BEGIN
    v_bytes := set_byte(v_bytes, 6, (get_byte(v_bytes, 6) & 15) | 112);
    RETURN encode(v_bytes, 'hex')::uuid::text;
END $$;

CREATE OR REPLACE FUNCTION penstock.refuse_job(p_field text, p_rule text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'penstock: %', p_field || ' ' || p_rule USING ERRCODE = 'invalid_parameter_value', COLUMN = p_field;
END $$;

-- A text of p_low to 200 characters, or NULL where that is allowed.
CREATE OR REPLACE FUNCTION penstock.job_text(p_field text, p_value json, p_low int, p_null boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_text text;
BEGIN
    IF json_typeof(p_value) = 'null' AND p_null THEN
        RETURN NULL;
    END IF;
    IF json_typeof(p_value) <> 'string' THEN
        PERFORM penstock.refuse_job(p_field, 'is a text.');
    END IF;
    v_text := p_value #>> '{}';
    IF length(v_text) NOT BETWEEN p_low AND 200 OR v_text ~ '[\x01-\x1f\x7f]' THEN
        PERFORM penstock.refuse_job(p_field, format('is %s to 200 printable characters.', p_low));
    END IF;
    RETURN v_text;
END $$;

-- A number in a range, or NULL where that is allowed.
CREATE OR REPLACE FUNCTION penstock.job_number(p_field text, p_value json, p_low numeric, p_high numeric, p_null boolean,
                                               p_whole boolean DEFAULT true) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF json_typeof(p_value) = 'null' AND p_null THEN
        RETURN NULL;
    END IF;
    IF json_typeof(p_value) <> 'number' OR (p_whole AND p_value::text !~ '^-?[0-9]+$')
       OR (p_value::text)::numeric NOT BETWEEN p_low AND p_high THEN
        PERFORM penstock.refuse_job(p_field, format('is a %s from %s to %s.',
            CASE WHEN p_whole THEN 'whole number' ELSE 'number' END, p_low, p_high));
    END IF;
    RETURN (p_value::text)::numeric;
END $$;

-- The fields of an option that is an object.
CREATE OR REPLACE FUNCTION penstock.check_job_part(p_field text, p_value json, p_needed text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_key text;
    v_value json;
    v_name text;
    v_year CONSTANT numeric := 31536000000;
BEGIN
    IF json_typeof(p_value) = 'null' THEN
        RETURN;
    END IF;
    IF json_typeof(p_value) <> 'object' THEN
        PERFORM penstock.refuse_job(p_field, 'is an object.');
    END IF;
    FOR v_key, v_value IN SELECT e.key, e.value FROM json_each(p_value) e LOOP
        v_name := p_field || '.' || v_key;
        CASE v_name
            WHEN 'concurrency.key', 'start_rate.key' THEN PERFORM penstock.job_text(v_name, v_value, 1, false);
            WHEN 'concurrency.width' THEN PERFORM penstock.job_number(v_name, v_value, 1, 10000, false);
            WHEN 'start_rate.per_second' THEN PERFORM penstock.job_number(v_name, v_value, 0.00001, 1000000, false, false);
            WHEN 'start_rate.burst' THEN PERFORM penstock.job_number(v_name, v_value, 1, 1000000, false);
            WHEN 'retry.attempts_max' THEN PERFORM penstock.job_number(v_name, v_value, 1, 1000, false);
            WHEN 'retry.losses_max' THEN PERFORM penstock.job_number(v_name, v_value, 0, 1000, false);
            WHEN 'retry.backoff_ms', 'retry.backoff_ms_max' THEN PERFORM penstock.job_number(v_name, v_value, 0, v_year, false);
            WHEN 'retry.factor' THEN PERFORM penstock.job_number(v_name, v_value, 1, 100, false, false);
            WHEN 'retry.jitter' THEN
                IF json_typeof(v_value) <> 'boolean' THEN
                    PERFORM penstock.refuse_job(v_name, 'is true or false.');
                END IF;
            ELSE PERFORM penstock.refuse_job(v_name, 'is no option of a job.');
        END CASE;
    END LOOP;
    FOREACH v_key IN ARRAY p_needed LOOP
        IF p_value -> v_key IS NULL THEN
            PERFORM penstock.refuse_job(p_field || '.' || v_key, 'is missing.');
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION penstock.check_job_tags(p_value json) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF json_typeof(p_value) <> 'array' OR json_array_length(p_value) > 20 THEN
        PERFORM penstock.refuse_job('tags', 'is a list of at most 20 texts.');
    END IF;
    PERFORM penstock.job_text('tags', e.value, 1, false) FROM json_array_elements(p_value) e;
END $$;

-- Check a job, a body of `POST /v1/jobs`, put it aside for a node, and return its id.
CREATE OR REPLACE FUNCTION penstock.stage_job(p_job json) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_key text;
    v_value json;
    v_now CONSTANT bigint := penstock.now_ms(NULL);
    v_year CONSTANT numeric := 31536000000;
    v_id text;
    v_queue text;
    v_task text;
    v_tenant text := '';
    v_group text;
    v_unique text;
    v_duplicate text := 'keep';
    v_delay numeric := 0;
    v_run_at numeric;
    v_expires numeric;
    v_concurrent boolean := false;
BEGIN
    IF p_job IS NULL OR json_typeof(p_job) <> 'object' THEN
        PERFORM penstock.refuse_job('A job', 'is a JSON object, as in POST /v1/jobs.');
    END IF;
    FOR v_key, v_value IN SELECT e.key, e.value FROM json_each(p_job) e LOOP
        CASE v_key
            WHEN 'queue' THEN
                v_queue := penstock.job_text(v_key, v_value, 1, false);
                IF v_queue !~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' THEN
                    PERFORM penstock.refuse_job(v_key, 'has letters, digits and ._:- only, and begins with one of the first two.');
                END IF;
            WHEN 'task' THEN v_task := penstock.job_text(v_key, v_value, 1, false);
            WHEN 'payload' THEN
                IF octet_length(v_value::text) > 1048576 THEN
                    PERFORM penstock.refuse_job(v_key, format('has %s bytes, and 1048576 at most are allowed.', octet_length(v_value::text)));
                END IF;
            WHEN 'id' THEN
                v_id := penstock.job_text(v_key, v_value, 1, true);
                IF v_id !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
                    PERFORM penstock.refuse_job(v_key, 'is a UUID in canonical form: lower-case hexadecimal digits, with hyphens.');
                END IF;
            WHEN 'priority' THEN PERFORM penstock.job_number(v_key, v_value, 0, 9, false);
            WHEN 'tenant' THEN v_tenant := penstock.job_text(v_key, v_value, 0, false);
            WHEN 'group' THEN v_group := penstock.job_text(v_key, v_value, 1, true);
            WHEN 'concurrency' THEN
                PERFORM penstock.check_job_part(v_key, v_value, '{key}');
                v_concurrent := json_typeof(v_value) <> 'null';
            WHEN 'start_rate' THEN PERFORM penstock.check_job_part(v_key, v_value, '{key,per_second}');
            WHEN 'retry' THEN PERFORM penstock.check_job_part(v_key, v_value, '{}');
            WHEN 'timeout_ms' THEN PERFORM penstock.job_number(v_key, v_value, 1, v_year, true);
            WHEN 'retention_ms' THEN PERFORM penstock.job_number(v_key, v_value, 0, v_year, true);
            WHEN 'expires_in_ms' THEN v_expires := penstock.job_number(v_key, v_value, 1, v_year, true);
            WHEN 'delay_ms' THEN v_delay := penstock.job_number(v_key, v_value, 0, v_year, false);
            WHEN 'run_at_ms' THEN v_run_at := penstock.job_number(v_key, v_value, 0, v_now + v_year, true);
            WHEN 'unique_key' THEN v_unique := penstock.job_text(v_key, v_value, 1, true);
            WHEN 'on_duplicate' THEN
                v_duplicate := penstock.job_text(v_key, v_value, 1, false);
                IF v_duplicate NOT IN ('keep', 'replace') THEN
                    PERFORM penstock.refuse_job(v_key, 'is keep or replace.');
                END IF;
            WHEN 'idempotency_key' THEN PERFORM penstock.job_text(v_key, v_value, 1, true);
            WHEN 'correlation_id' THEN
                IF penstock.job_text(v_key, v_value, 1, true) !~ '^[!-~]+$' THEN
                    PERFORM penstock.refuse_job(v_key, 'has visible ASCII characters only.');
                END IF;
            WHEN 'traceparent' THEN
                IF json_typeof(v_value) NOT IN ('string', 'null') THEN
                    PERFORM penstock.refuse_job(v_key, 'is a text.');
                END IF;
            WHEN 'tags' THEN PERFORM penstock.check_job_tags(v_value);
            ELSE PERFORM penstock.refuse_job(v_key, 'is no option of a job.');
        END CASE;
    END LOOP;
    IF v_queue IS NULL OR v_task IS NULL THEN
        PERFORM penstock.refuse_job(CASE WHEN v_queue IS NULL THEN 'queue' ELSE 'task' END, 'is missing.');
    END IF;
    IF v_group IS NOT NULL AND v_concurrent THEN
        PERFORM penstock.refuse_job('group', 'and concurrency cannot both be given.');
    END IF;
    IF v_duplicate = 'replace' AND v_unique IS NULL THEN
        PERFORM penstock.refuse_job('on_duplicate', 'replace needs a unique_key.');
    END IF;
    IF v_run_at IS NOT NULL AND v_delay > 0 THEN
        PERFORM penstock.refuse_job('run_at_ms', 'and delay_ms cannot both be given.');
    END IF;
    IF v_expires <= coalesce(v_run_at - v_now, v_delay) THEN
        PERFORM penstock.refuse_job('expires_in_ms', 'is not after the instant at which the job is due.');
    END IF;
    v_id := coalesce(v_id, penstock.new_job_id());
    INSERT INTO penstock.staged_job (id, queue, line, request, staged_at)
    VALUES (v_id, v_queue, to_json(v_tenant)::text || to_json(v_group)::text, p_job::text, v_now);
    RETURN v_id;
END $$;

-- Enqueue a job when this transaction commits, and return its id. `options` are the fields of `POST /v1/jobs` besides these.
CREATE OR REPLACE FUNCTION penstock.enqueue_v1(queue text, task text, payload jsonb DEFAULT 'null', options jsonb DEFAULT '{}')
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id text;
BEGIN
    IF jsonb_typeof(options) <> 'object' THEN
        PERFORM penstock.refuse_job('options', 'is a JSON object.');
    END IF;
    IF options ?| '{queue,task,payload}' THEN
        PERFORM penstock.refuse_job('options', 'has neither queue, task nor payload: these are arguments of their own.');
    END IF;
    v_id := penstock.stage_job((coalesce(options, '{}') || jsonb_build_object(
        'queue', queue, 'task', task, 'payload', coalesce(payload, 'null')))::json);
    PERFORM pg_notify('penstock_staged', '');
    RETURN v_id;
END $$;

-- Enqueue jobs when this transaction commits, and return their ids in order. Each is a body of `POST /v1/jobs`, kept as it is written.
CREATE OR REPLACE FUNCTION penstock.enqueue_jobs_v1(jobs json) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_job json;
BEGIN
    IF jobs IS NULL OR json_typeof(jobs) <> 'array' OR json_array_length(jobs) NOT BETWEEN 1 AND 500 THEN
        PERFORM penstock.refuse_job('jobs', 'is a JSON array of 1 to 500 jobs.');
    END IF;
    FOR v_job IN SELECT e.value FROM json_array_elements(jobs) WITH ORDINALITY e(value, place) ORDER BY e.place LOOP
        RETURN NEXT penstock.stage_job(v_job);
    END LOOP;
    PERFORM pg_notify('penstock_staged', '');
END $$;

REVOKE ALL ON FUNCTION
    penstock.new_job_id(), penstock.refuse_job(text, text), penstock.job_text(text, json, int, boolean),
    penstock.job_number(text, json, numeric, numeric, boolean, boolean), penstock.check_job_part(text, json, text[]),
    penstock.check_job_tags(json), penstock.stage_job(json), penstock.enqueue_v1(text, text, jsonb, jsonb),
    penstock.enqueue_jobs_v1(json)
FROM PUBLIC;
