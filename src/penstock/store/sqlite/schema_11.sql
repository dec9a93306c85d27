-- Jobs that expire, and jobs with a retention of their own. PostgreSQL's migration 0017 does the same.
--
-- `expires_at` is when a job that has never started is cancelled; `due_at` has the same instant while the job is queued.
ALTER TABLE job ADD COLUMN expires_at INTEGER;
ALTER TABLE job ADD COLUMN retention_ms INTEGER;
CREATE INDEX job_own_retention ON job (queue_id, state, finished_at + retention_ms)
    WHERE finished_at IS NOT NULL AND retention_ms IS NOT NULL;
