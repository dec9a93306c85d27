-- Jobs. All instants are milliseconds since the epoch. SQLite's jobs_schema.sql has the same tables.
--
-- What changes with every step of a job's life is small and apart from its contents, which are written once or twice.

CREATE TABLE penstock.job_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    settings bytea NOT NULL,
    paused smallint NOT NULL DEFAULT 0,
    revision int NOT NULL DEFAULT 1,
    created_at bigint NOT NULL
);

-- `ready` is 1 for what may be offered: it is queued, it has a place in its lane, and no breaker holds it up. `due_at` is
-- when something happens by itself: it comes due, its offer ends, its lease lapses, or a breaker may let it pass.
-- `in_lane` is 1 while it takes up a place of its lane. `queued_at` is since when it has waited for a worker, if it does.
-- `turn` is the number of the call that offered it last.
CREATE TABLE penstock.job (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    queue_id bigint NOT NULL,
    task text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    ready smallint NOT NULL,
    due_at bigint,
    lane_id bigint,
    in_lane smallint NOT NULL DEFAULT 0,
    fence int NOT NULL DEFAULT 0,
    turn bigint NOT NULL DEFAULT 0,
    attempts int NOT NULL DEFAULT 0,
    failures int NOT NULL DEFAULT 0,
    losses int NOT NULL DEFAULT 0,
    events int NOT NULL DEFAULT 0,
    times_out_at bigint,
    cancel_requested smallint NOT NULL DEFAULT 0,
    unique_key text COLLATE "C",
    failure_kind text COLLATE "C",
    worker text COLLATE "C" NOT NULL DEFAULT '',
    enqueued_at bigint NOT NULL,
    queued_at bigint NOT NULL DEFAULT 0,
    finished_at bigint
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_ready ON penstock.job (queue_id, tenant, priority DESC, position) WHERE ready = 1;
CREATE INDEX job_due ON penstock.job (queue_id, due_at) WHERE due_at IS NOT NULL;
-- Of all queues. What asks for the jobs of one queue must not walk over those of others, so it is only for statements
-- that say once more that the job is not finished.
CREATE INDEX job_due_anywhere ON penstock.job (due_at) WHERE due_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX job_held ON penstock.job (lane_id, in_lane, priority DESC, position) WHERE lane_id IS NOT NULL AND ready = 0 AND state = 2;
CREATE INDEX job_line ON penstock.job (lane_id, in_lane, position) WHERE lane_id IS NOT NULL AND finished_at IS NULL;
CREATE UNIQUE INDEX job_unique ON penstock.job (queue_id, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX job_state ON penstock.job (queue_id, state, position);
CREATE INDEX job_finished ON penstock.job (queue_id, state, finished_at, position) WHERE finished_at IS NOT NULL;

-- Jobs that were removed, but not yet all of their attempts and events: one may have many thousands of them.
CREATE TABLE penstock.job_removed (
    position bigint PRIMARY KEY
);

CREATE TABLE penstock.job_content (
    position bigint PRIMARY KEY,
    payload bytea NOT NULL,
    options bytea NOT NULL,
    result bytea,
    failure bytea
);

CREATE TABLE penstock.job_tag (
    tag text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (tag, position)
);
CREATE INDEX job_tag_position ON penstock.job_tag (position);

CREATE TABLE penstock.job_attempt (
    position bigint NOT NULL,
    fence int NOT NULL,
    number int NOT NULL,
    worker text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint,
    outcome smallint NOT NULL,
    answer bytea,
    failure bytea,
    PRIMARY KEY (position, fence)
);

CREATE TABLE penstock.job_event (
    position bigint NOT NULL,
    seq int NOT NULL,
    attempt int NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (position, seq)
);
CREATE UNIQUE INDEX job_event_id ON penstock.job_event (position, event_id);

CREATE TABLE penstock.job_key (
    queue_id bigint NOT NULL,
    key bytea NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (queue_id, key)
);
CREATE INDEX job_key_expiry ON penstock.job_key (expires_at);
CREATE INDEX job_key_job ON penstock.job_key (job_id);

CREATE TABLE penstock.job_lane (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    width int NOT NULL,
    ordered smallint NOT NULL,
    occupied int NOT NULL,
    jobs int NOT NULL,
    UNIQUE (queue_id, key, ordered)
);
CREATE INDEX job_lane_empty ON penstock.job_lane (id) WHERE jobs = 0;

CREATE TABLE penstock.job_breaker (
    queue_id bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    failures int NOT NULL,
    opened_at bigint,
    retry_at bigint,
    probes int NOT NULL,
    PRIMARY KEY (queue_id, key)
);
CREATE INDEX job_breaker_closed ON penstock.job_breaker (queue_id, key) WHERE failures = 0 AND retry_at IS NULL;

-- Token buckets: the instant, in microseconds, at which the bucket is full again.
CREATE TABLE penstock.job_bucket (
    queue_id bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    whole smallint NOT NULL,
    full_at_us bigint NOT NULL,
    PRIMARY KEY (queue_id, whole, tenant)
);
CREATE INDEX job_bucket_full ON penstock.job_bucket (full_at_us);

CREATE TABLE penstock.job_count (
    queue_id bigint NOT NULL,
    state smallint NOT NULL,
    shard smallint NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (queue_id, state, shard)
);

CREATE TABLE penstock.job_schedule (
    name text COLLATE "C" PRIMARY KEY,
    queue_id bigint NOT NULL,
    spec bytea NOT NULL,
    paused smallint NOT NULL,
    next_at bigint,
    last_at bigint,
    last_job_id text COLLATE "C",
    revision int NOT NULL
);
CREATE INDEX job_schedule_queue ON penstock.job_schedule (queue_id);
CREATE INDEX job_schedule_next ON penstock.job_schedule (next_at) WHERE next_at IS NOT NULL;

-- `cursor` is the last position that was looked at, `last` the last that there was at the start.
CREATE TABLE penstock.job_operation (
    id text COLLATE "C" PRIMARY KEY,
    queue_id bigint NOT NULL,
    kind smallint NOT NULL,
    wanted bytea NOT NULL,
    rate bigint,
    state smallint NOT NULL,
    done bigint NOT NULL,
    cursor bigint NOT NULL,
    last bigint NOT NULL,
    next_at bigint,
    started_at bigint NOT NULL,
    ended_at bigint
);
CREATE INDEX job_operation_next ON penstock.job_operation (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX job_operation_ended ON penstock.job_operation (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX job_operation_queue ON penstock.job_operation (queue_id, started_at);
