-- What is remembered of calls so that a repeat has no second effect: ids of jobs that were purged, with a digest of what
-- they were, and keys of calls that left no other trace. SQLite's schema_8.sql has the same table.
CREATE TABLE penstock.job_spent (
    key text COLLATE "C" PRIMARY KEY,
    digest bytea,
    expires_at bigint NOT NULL
);
CREATE INDEX job_spent_expiry ON penstock.job_spent (expires_at);

-- How many jobs an operation is for at most. NULL is all.
ALTER TABLE penstock.job_operation ADD COLUMN at_most int;
