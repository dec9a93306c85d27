-- Jobs that expire, and jobs with a retention of their own. SQLite's schema_11.sql does the same.
--
-- `expires_at` is when a job that has never started is cancelled; `due_at` has the same instant while the job is queued. Nodes of
-- the version before, which may still run, know neither column, so until they are stopped a job may outlive its expiry.
LOCK TABLE penstock.job IN ACCESS EXCLUSIVE MODE;
ALTER TABLE penstock.job
    ADD COLUMN expires_at bigint,
    ADD COLUMN retention_ms bigint;
CREATE INDEX job_own_retention ON penstock.job (queue_id, state, (finished_at + retention_ms), position)
    WHERE finished_at IS NOT NULL AND retention_ms IS NOT NULL;
