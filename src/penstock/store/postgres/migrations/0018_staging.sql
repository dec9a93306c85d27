-- Jobs that users' transactions have asked for, until a node enqueues them. functions/staging.sql puts rows in.
--
-- `request` is the body of `POST /v1/jobs`. `line` is the tenant and the group of a job that has one: those keep their order. `next_at`
-- is when a node may try; 0 is at once. NULL: refused for good, for the reason in `problem` and `detail`, which also say why a row that
-- is still to be tried has been refused so far. Ids are not unique here: two transactions must not wait for each other.
CREATE TABLE penstock.staged_job (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    line text COLLATE "C",
    request text NOT NULL,
    staged_at bigint NOT NULL,
    next_at bigint DEFAULT 0,
    tries int NOT NULL DEFAULT 0,
    problem text,
    detail text,
    refused_at bigint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX staged_job_next ON penstock.staged_job (queue, next_at, position) WHERE next_at IS NOT NULL;
CREATE INDEX staged_job_line ON penstock.staged_job (queue, line, position) WHERE line IS NOT NULL AND next_at IS NOT NULL;
CREATE INDEX staged_job_id ON penstock.staged_job (id);
CREATE INDEX staged_job_refused ON penstock.staged_job (position) WHERE next_at IS NULL;
