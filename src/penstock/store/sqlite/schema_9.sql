-- Whom to offer next. PostgreSQL's migration 0014 does the same.
--
-- `rank` orders the jobs of a tenant, the lowest first: the instant at which the job came due, less so much for each step of
-- priority (the queue's aging_ms, which was 60 s for all queues before it was a setting).
ALTER TABLE job ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
UPDATE job SET rank = max(queued_at, enqueued_at) - priority * 60000 WHERE finished_at IS NULL;
DROP INDEX job_ready;
CREATE INDEX job_ready ON job (queue_id, tenant, rank, position) WHERE ready = 1;
-- For workers that take some tasks only.
CREATE INDEX job_ready_task ON job (queue_id, task, tenant, rank, position) WHERE ready = 1;
DROP INDEX job_held;
CREATE INDEX job_held ON job (lane_id, in_lane, rank, position) WHERE lane_id IS NOT NULL AND ready = 0 AND state = 2;

-- Start rates. `gate` is what a job with one waits at, as a JSON array: 1 if tenants share it, the tenant, the key. `ready` is 2
-- while it waits there, and 0 or 1 as before otherwise.
ALTER TABLE job ADD COLUMN gate TEXT;
CREATE INDEX job_gated ON job (queue_id, gate, task, rank, position) WHERE ready = 2;

-- A gate is a token bucket: the instant, in microseconds, at which it is full again, and its rate, as the interval between tokens
-- and how many it holds, unless that is not known yet. `charged_until` is when the offers end that took tokens last, and
-- `charged_us` what each of them took. `next_at` is when to look whether somebody who waits may go; NULL if nobody waits.
CREATE TABLE job_gate (
    queue_id INTEGER NOT NULL,
    gate TEXT NOT NULL,
    interval_us INTEGER,
    burst INTEGER,
    full_at_us INTEGER NOT NULL DEFAULT 0,
    charged_until INTEGER NOT NULL DEFAULT 0,
    charged_us INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER,
    PRIMARY KEY (queue_id, gate)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_gate_next ON job_gate (queue_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX job_gate_idle ON job_gate (full_at_us) WHERE next_at IS NULL;
