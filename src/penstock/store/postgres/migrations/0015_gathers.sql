-- Gathers: jobs that are waited for together. `queue_id`, `queue`, `task` and `draft` are of the continuation, whose id is
-- in `continuation` once it is enqueued. `kept_until` is when the members may be removed; NULL while the gather, or its
-- continuation, has not ended. SQLite's schema_10.sql has the same tables.
CREATE TABLE penstock.job_gather (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    state smallint NOT NULL,
    on_error smallint NOT NULL,
    sealed smallint NOT NULL DEFAULT 0,
    total int NOT NULL DEFAULT 0,
    succeeded int NOT NULL DEFAULT 0,
    failed int NOT NULL DEFAULT 0,
    queue_id bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    draft bytea NOT NULL,
    fingerprint bytea NOT NULL,
    continuation text COLLATE "C",
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    ended_at bigint,
    kept_until bigint
) WITH (fillfactor = 50);
CREATE INDEX job_gather_expiry ON penstock.job_gather (expires_at) WHERE ended_at IS NULL;
CREATE INDEX job_gather_queue ON penstock.job_gather (queue_id) WHERE ended_at IS NULL;
CREATE INDEX job_gather_kept ON penstock.job_gather (kept_until) WHERE kept_until IS NOT NULL;

-- `outcome` is the state of a member that was removed after it had ended; a job that is gone without one was purged.
CREATE TABLE penstock.job_gather_member (
    gather_id text COLLATE "C" NOT NULL,
    place int NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    outcome smallint,
    PRIMARY KEY (gather_id, place)
);
CREATE INDEX job_gather_member_job ON penstock.job_gather_member (job_id);
