-- Whom to offer next. SQLite's schema_9.sql does the same.
--
-- `rank` orders the jobs of a tenant, the lowest first: the instant at which the job came due, less so much for each step of
-- priority (the queue's aging_ms, which was 60 s for all queues before it was a setting).
LOCK TABLE penstock.job IN ACCESS EXCLUSIVE MODE;
ALTER TABLE penstock.job
    ADD COLUMN rank bigint NOT NULL DEFAULT 0,
    ADD COLUMN gate text COLLATE "C";
UPDATE penstock.job SET rank = greatest(queued_at, enqueued_at) - priority * 60000::bigint WHERE finished_at IS NULL;
-- For nodes of the version before, which may still run and know no rank.
ALTER TABLE penstock.job ALTER COLUMN rank SET DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint);
DROP INDEX penstock.job_ready;
CREATE INDEX job_ready ON penstock.job (queue_id, tenant, rank, position) WHERE ready = 1;
-- For workers that take some tasks only.
CREATE INDEX job_ready_task ON penstock.job (queue_id, task, tenant, rank, position) WHERE ready = 1;
DROP INDEX penstock.job_held;
CREATE INDEX job_held ON penstock.job (lane_id, in_lane, rank, position) WHERE lane_id IS NOT NULL AND ready = 0 AND state = 2;

-- Start rates. `gate` is what a job with one waits at, as a JSON array: 1 if tenants share it, the tenant, the key. `ready` is 2
-- while it waits there, and 0 or 1 as before otherwise.
CREATE INDEX job_gated ON penstock.job (queue_id, gate, task, rank, position) WHERE ready = 2;

-- A gate is a token bucket: the instant, in microseconds, at which it is full again, and its rate, as the interval between tokens
-- and how many it holds, unless that is not known yet. `charged_until` is when the offers end that took tokens last, and
-- `charged_us` what each of them took. `next_at` is when to look whether somebody who waits may go; NULL if nobody waits.
CREATE TABLE penstock.job_gate (
    queue_id bigint NOT NULL,
    gate text COLLATE "C" NOT NULL,
    interval_us bigint,
    burst int,
    full_at_us bigint NOT NULL DEFAULT 0,
    charged_until bigint NOT NULL DEFAULT 0,
    charged_us bigint NOT NULL DEFAULT 0,
    next_at bigint,
    PRIMARY KEY (queue_id, gate)
);
CREATE INDEX job_gate_next ON penstock.job_gate (queue_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX job_gate_idle ON penstock.job_gate (full_at_us) WHERE next_at IS NULL;
