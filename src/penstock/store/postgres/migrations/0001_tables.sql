-- Tables. All instants are milliseconds since the epoch.
--
-- A queue's messages are kept under its *partition*, a number that a purge replaces and a deletion retires: both are one
-- small update, whatever the queue holds. Every statement reads the partition in its own transaction.

-- The one place where time comes from: the database's clock, or the instant that a test has pinned. It is read inside the
-- transaction, never before it, and so is not earlier than pg_stat_activity.xact_start: the scan floors depend on that.
CREATE FUNCTION penstock.now_ms(pinned bigint) RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
$$ SELECT coalesce(pinned, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) $$;

CREATE TABLE penstock.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret bytea NOT NULL                       -- signs receipt handles; the same for all nodes
);

-- Queues --------------------------------------------------------------------------------------------------------------

CREATE SEQUENCE penstock.partition AS int;

CREATE TABLE penstock.queue (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    region text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    arn text COLLATE "C" NOT NULL UNIQUE,
    fifo boolean NOT NULL,
    partition int NOT NULL DEFAULT nextval('penstock.partition'),
    attributes json NOT NULL,
    tags json NOT NULL,
    retention_ms bigint NOT NULL,               -- out of the attributes, for the sweeper
    dead_letter_arn text COLLATE "C",           -- out of the attributes, to find a dead-letter queue's sources
    created_at bigint NOT NULL,
    modified_at bigint NOT NULL,
    purged_at bigint,
    revision int NOT NULL DEFAULT 1,
    UNIQUE (region, account, name)
) WITH (fillfactor = 50);
CREATE INDEX queue_dead_letter ON penstock.queue (dead_letter_arn, name) WHERE dead_letter_arn IS NOT NULL;

CREATE TABLE penstock.deleted_queue (           -- names that are not free yet
    arn text COLLATE "C" PRIMARY KEY,
    deleted_at bigint NOT NULL
);

CREATE TABLE penstock.retired_partition (       -- contents of purged and deleted queues, to be swept
    partition int PRIMARY KEY,
    fifo boolean NOT NULL,
    retired_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Messages ------------------------------------------------------------------------------------------------------------
-- What every lease rewrites is small and apart from the body, which is written once.
--
-- A message is hidden while visible_at > now. It is leased if it has been delivered (receipt > 0), else delayed: nothing but
-- a delay and a lease ever hides a message. `receipt` only grows. Positions grow with sent_at (but for transactions that
-- overlap), so the oldest messages of a partition come first by its primary key.
--
-- `due_partition` is `partition` once more, so that a statement says which index it means: what comes due is looked for by
-- the one, a message or a group that is named by the other. Where a queue is nearly empty both look the same to the planner,
-- and its choice of the wrong one would make every delete walk over all rows that are dead but not yet gone.

CREATE SEQUENCE penstock.position;              -- CACHE 1: on FIFO queues it is the sequence number, ordered across sessions

CREATE TABLE penstock.message (                 -- of standard queues
    partition int NOT NULL,
    receipt int NOT NULL DEFAULT 0,
    position bigint NOT NULL,
    visible_at bigint NOT NULL,
    sent_at bigint NOT NULL,
    leased_at bigint,
    first_received_at bigint,
    tenant bigint,                              -- hash of the group: two that collide merely share their turn
    receive_count int NOT NULL DEFAULT 0,
    due_partition int NOT NULL GENERATED ALWAYS AS (partition) STORED,
    dead_letter_source text,
    PRIMARY KEY (partition, position)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5);
CREATE INDEX message_due ON penstock.message (due_partition, visible_at, position);
CREATE INDEX message_tenant ON penstock.message (partition, tenant, visible_at, position) WHERE tenant IS NOT NULL;

CREATE TABLE penstock.body (                    -- of all messages
    position bigint PRIMARY KEY,
    message_id text NOT NULL,
    body text NOT NULL,
    attributes bytea,
    sender text,
    group_name text,
    deduplication_id text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE penstock.body ALTER body SET STORAGE EXTERNAL;  -- not compressed: that costs more than it saves

CREATE TABLE penstock.fifo_group (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition int NOT NULL,
    name text COLLATE "C" NOT NULL,
    ready_at bigint NOT NULL,                   -- nothing of the group is leasable before: too early is harmless, too late is not
    leased_to bigint NOT NULL DEFAULT 0,        -- whatever is leased has a position up to this one
    due_partition int NOT NULL GENERATED ALWAYS AS (partition) STORED,
    UNIQUE (partition, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX fifo_group_ready ON penstock.fifo_group (due_partition, ready_at, id);

CREATE TABLE penstock.fifo_message (            -- no index holds what a lease changes: its updates stay within their page
    partition int NOT NULL,
    receipt int NOT NULL DEFAULT 0,
    position bigint NOT NULL,                   -- the sequence number
    group_id bigint NOT NULL,
    visible_at bigint NOT NULL,
    sent_at bigint NOT NULL,
    leased_at bigint,
    first_received_at bigint,
    receive_count int NOT NULL DEFAULT 0,
    dead_letter_source text,
    PRIMARY KEY (partition, position)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX fifo_message_order ON penstock.fifo_message (group_id, position);

CREATE TABLE penstock.deduplication (           -- by queue at first; 0008 keeps it by partition
    queue_id int NOT NULL,
    scope text COLLATE "C" NOT NULL,            -- the group, or '' where the whole queue is the scope
    deduplication_id text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    position bigint NOT NULL,
    message_id text NOT NULL,
    PRIMARY KEY (queue_id, scope, deduplication_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deduplication_expiry ON penstock.deduplication (expires_at);

-- Outcomes ------------------------------------------------------------------------------------------------------------
-- Written in the transaction whose answer they keep, and found again by whoever does not know whether it was committed.

CREATE TABLE penstock.append_outcome (
    key bytea PRIMARY KEY,
    expires_at bigint NOT NULL,
    results bytea NOT NULL,                     -- the answer; on FIFO the two below replace ids and sequence numbers in it
    message_ids text[],
    sequences bigint[]
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX append_outcome_expiry ON penstock.append_outcome (expires_at);

CREATE TABLE penstock.lease_outcome (
    key bytea PRIMARY KEY,
    expires_at bigint NOT NULL,
    positions bigint[] NOT NULL,
    receipts int[] NOT NULL,
    again boolean NOT NULL DEFAULT false        -- given to a second caller: the first has no right to give it back any more
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lease_outcome_expiry ON penstock.lease_outcome (expires_at);

CREATE TABLE penstock.work_outcome (            -- of visibility changes and administration, under keys of the store's own
    key bytea PRIMARY KEY,
    expires_at bigint NOT NULL,
    result bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX work_outcome_expiry ON penstock.work_outcome (expires_at);

-- An attempt whose connection was lost may still be running, and may yet be committed: whoever comes next with its key
-- waits here until it has ended, and only then looks for what it left.
CREATE FUNCTION penstock.take_turn(p_key bytea) RETURNS void LANGUAGE sql AS
$$ SELECT pg_advisory_xact_lock(hashtextextended(encode(p_key, 'hex'), 1)) $$;

-- An answer that was found and not written by this very transaction may have been committed here and not yet on a
-- synchronous standby. A row of our own makes this transaction's commit wait until the standby has both.
CREATE FUNCTION penstock.confirm(now bigint) RETURNS void LANGUAGE sql AS
$$ INSERT INTO penstock.work_outcome (key, expires_at, result) VALUES (uuid_send(gen_random_uuid()), now, '') $$;

-- Move tasks ----------------------------------------------------------------------------------------------------------

CREATE TABLE penstock.move_task (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    source_id int NOT NULL,
    destination_id int,                         -- NULL: back to where each message came from
    source json NOT NULL,                       -- names, for whoever lists tasks of queues that are gone
    destination json,
    rate int,
    status text NOT NULL,
    moved bigint NOT NULL DEFAULT 0,
    to_move bigint NOT NULL,
    started_at bigint NOT NULL,
    due_at bigint NOT NULL,
    failure text
);
CREATE INDEX move_task_source ON penstock.move_task (source_id, number);
CREATE UNIQUE INDEX move_task_running ON penstock.move_task (source_id) WHERE status = 'RUNNING';
