-- Gathers: jobs that are waited for together. `queue_id`, `queue`, `task` and `draft` are of the continuation, whose id is
-- in `continuation` once it is enqueued. `kept_until` is when the members may be removed; NULL while the gather, or its
-- continuation, has not ended. PostgreSQL's migration 0015 has the same tables.
CREATE TABLE job_gather (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    state INTEGER NOT NULL,
    on_error INTEGER NOT NULL,
    sealed INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    queue_id INTEGER NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    draft BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    continuation TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at INTEGER,
    kept_until INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX job_gather_expiry ON job_gather (expires_at) WHERE ended_at IS NULL;
CREATE INDEX job_gather_queue ON job_gather (queue_id) WHERE ended_at IS NULL;
CREATE INDEX job_gather_kept ON job_gather (kept_until) WHERE kept_until IS NOT NULL;

-- `outcome` is the state of a member that was removed after it had ended; a job that is gone without one was purged.
CREATE TABLE job_gather_member (
    gather_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    job_id TEXT NOT NULL,
    outcome INTEGER,
    PRIMARY KEY (gather_id, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_gather_member_job ON job_gather_member (job_id);
