-- Workers that are connected to any node. What is lost in a crash is told anew within seconds, so it is not logged.
-- SQLite has one process, and keeps this in memory.
CREATE UNLOGGED TABLE penstock.job_worker (
    name text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    queues text NOT NULL,
    tasks text,
    credit int NOT NULL,
    running int,
    since bigint NOT NULL,
    seen_at bigint NOT NULL,
    PRIMARY KEY (name, id)
);
CREATE INDEX job_worker_seen ON penstock.job_worker (seen_at);
