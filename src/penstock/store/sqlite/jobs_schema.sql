-- Jobs. All instants are milliseconds since the epoch. PostgreSQL's migration 0007 has the same tables.
--
-- What changes with every step of a job's life is small and apart from its contents, which are written once or twice.
-- Numbers are never used again (AUTOINCREMENT): what refers to something that was removed must not find another.

CREATE TABLE job_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    settings BLOB NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL
) STRICT;

-- `ready` is 1 for what may be offered: it is queued, it has a place in its lane, and no breaker holds it up. `due_at` is
-- when something happens by itself: it comes due, its offer ends, its lease lapses, or a breaker may let it pass.
-- `in_lane` is 1 while it takes up a place of its lane. `queued_at` is since when it has waited for a worker, if it does.
-- `turn` is the number of the call that offered it last.
CREATE TABLE job (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    queue_id INTEGER NOT NULL,
    task TEXT NOT NULL,
    tenant TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    due_at INTEGER,
    lane_id INTEGER,
    in_lane INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0,
    times_out_at INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    unique_key TEXT,
    failure_kind TEXT,
    worker TEXT NOT NULL DEFAULT '',
    enqueued_at INTEGER NOT NULL,
    queued_at INTEGER NOT NULL DEFAULT 0,
    finished_at INTEGER
) STRICT;
CREATE INDEX job_ready ON job (queue_id, tenant, priority DESC, position) WHERE ready = 1;
CREATE INDEX job_due ON job (queue_id, due_at) WHERE due_at IS NOT NULL;
-- Of all queues. What asks for the jobs of one queue must not walk over those of others, so it is only for statements
-- that say once more that the job is not finished.
CREATE INDEX job_due_anywhere ON job (due_at) WHERE due_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX job_held ON job (lane_id, in_lane, priority DESC, position) WHERE lane_id IS NOT NULL AND ready = 0 AND state = 2;
CREATE INDEX job_line ON job (lane_id, in_lane, position) WHERE lane_id IS NOT NULL AND finished_at IS NULL;
CREATE UNIQUE INDEX job_unique ON job (queue_id, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX job_state ON job (queue_id, state, position);
CREATE INDEX job_finished ON job (queue_id, state, finished_at) WHERE finished_at IS NOT NULL;

-- Jobs that were removed, but not yet all of their attempts and events: one may have many thousands of them.
CREATE TABLE job_removed (
    position INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE job_content (
    position INTEGER PRIMARY KEY,
    payload BLOB NOT NULL,
    options BLOB NOT NULL,
    result BLOB,
    failure BLOB
) STRICT;

CREATE TABLE job_tag (
    tag TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (tag, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_tag_position ON job_tag (position);

CREATE TABLE job_attempt (
    position INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome INTEGER NOT NULL,
    answer BLOB,
    failure BLOB,
    PRIMARY KEY (position, fence)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_event (
    position INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    data BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (position, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX job_event_id ON job_event (position, event_id);

CREATE TABLE job_key (
    queue_id INTEGER NOT NULL,
    key BLOB NOT NULL,
    job_id TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (queue_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_key_expiry ON job_key (expires_at);
CREATE INDEX job_key_job ON job_key (job_id);

CREATE TABLE job_lane (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    width INTEGER NOT NULL,
    ordered INTEGER NOT NULL,
    occupied INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    UNIQUE (queue_id, key, ordered)
) STRICT;
CREATE INDEX job_lane_empty ON job_lane (id) WHERE jobs = 0;

CREATE TABLE job_breaker (
    queue_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    failures INTEGER NOT NULL,
    opened_at INTEGER,
    retry_at INTEGER,
    probes INTEGER NOT NULL,
    PRIMARY KEY (queue_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_breaker_closed ON job_breaker (queue_id, key) WHERE failures = 0 AND retry_at IS NULL;

-- Token buckets: the instant, in microseconds, at which the bucket is full again.
CREATE TABLE job_bucket (
    queue_id INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    whole INTEGER NOT NULL,
    full_at_us INTEGER NOT NULL,
    PRIMARY KEY (queue_id, whole, tenant)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_bucket_full ON job_bucket (full_at_us);

CREATE TABLE job_count (
    queue_id INTEGER NOT NULL,
    state INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (queue_id, state, shard)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_schedule (
    name TEXT PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    spec BLOB NOT NULL,
    paused INTEGER NOT NULL,
    next_at INTEGER,
    last_at INTEGER,
    last_job_id TEXT,
    revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX job_schedule_queue ON job_schedule (queue_id);
CREATE INDEX job_schedule_next ON job_schedule (next_at) WHERE next_at IS NOT NULL;

-- `cursor` is the last position that was looked at, `last` the last that there was at the start.
CREATE TABLE job_operation (
    id TEXT PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    wanted BLOB NOT NULL,
    rate INTEGER,
    state INTEGER NOT NULL,
    done INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    last INTEGER NOT NULL,
    next_at INTEGER,
    started_at INTEGER NOT NULL,
    ended_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX job_operation_next ON job_operation (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX job_operation_ended ON job_operation (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX job_operation_queue ON job_operation (queue_id, started_at);
