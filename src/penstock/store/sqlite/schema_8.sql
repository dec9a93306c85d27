-- What is remembered of calls so that a repeat has no second effect: ids of jobs that were purged, with a digest of what
-- they were, and keys of calls that left no other trace. PostgreSQL's migration 0013 has the same table.
CREATE TABLE job_spent (
    key TEXT PRIMARY KEY,
    digest BLOB,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX job_spent_expiry ON job_spent (expires_at);

-- How many jobs an operation is for at most. NULL is all.
ALTER TABLE job_operation ADD COLUMN at_most INTEGER;
