-- What is known no longer than the process lives, in memory: it never reaches the file.

-- Workers that are connected to this process. PostgreSQL has those of all nodes.
CREATE TEMPORARY TABLE job_worker (
    name TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    queues TEXT NOT NULL,
    tasks TEXT,
    credit INTEGER NOT NULL,
    running INTEGER,
    since INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (name, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX temp.job_worker_seen ON job_worker (seen_at);
