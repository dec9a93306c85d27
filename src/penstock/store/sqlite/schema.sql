-- The schema of version 1. What changes often is kept apart from what is large.
--
-- A *partition* is the number of a queue's present contents: a purge gives the queue another one and leaves the old
-- contents to the sweeper. A *position* is partition, lane and sequence number in one integer (see positions.py), so
-- that a queue's messages lie together and in order.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: an id is never given to a second queue, because receipt handles carry it.
CREATE TABLE queue (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    region          TEXT NOT NULL,
    account         TEXT NOT NULL,
    name            TEXT NOT NULL,
    partition       INTEGER NOT NULL,
    attributes      TEXT NOT NULL,
    tags            TEXT NOT NULL,
    retention_ms    INTEGER NOT NULL,   -- from the attributes, for the sweeper
    dead_letter_arn TEXT,               -- from the attributes, for the list of sources
    created_at_ms   INTEGER NOT NULL,
    modified_at_ms  INTEGER NOT NULL,
    purged_at_ms    INTEGER,
    revision        INTEGER NOT NULL,
    UNIQUE (region, account, name)
) STRICT;

CREATE INDEX queue_dead_letter ON queue (dead_letter_arn, name) WHERE dead_letter_arn IS NOT NULL;

CREATE TABLE deleted_name (
    region     TEXT NOT NULL,
    account    TEXT NOT NULL,
    name       TEXT NOT NULL,
    deleted_at_ms INTEGER NOT NULL,
    PRIMARY KEY (region, account, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX deleted_name_age ON deleted_name (deleted_at_ms);

-- How much a partition holds, written once in every commit that changes it, so that no count needs a scan.
CREATE TABLE contents (
    partition INTEGER PRIMARY KEY,
    messages  INTEGER NOT NULL,   -- all of them
    leased    INTEGER NOT NULL,   -- deliveries in state 1
    delayed   INTEGER NOT NULL,   -- deliveries in state 2
    returned  INTEGER NOT NULL,   -- deliveries in state 0 without a group
    groups    INTEGER NOT NULL,   -- rows of message_group
    cursor    INTEGER NOT NULL,   -- up to this position every fresh message was taken at least once
    sequence  INTEGER NOT NULL    -- the last sequence number given
) STRICT;

-- Partitions that no queue has any more. Once swept, a number is given out again.
CREATE TABLE garbage (
    partition INTEGER PRIMARY KEY,
    swept     INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX garbage_unswept ON garbage (partition) WHERE swept = 0;

-- A message as it was sent; never updated.
CREATE TABLE message (
    position           INTEGER PRIMARY KEY,
    message_id         TEXT NOT NULL,
    sent_at_ms         INTEGER NOT NULL,
    sender             TEXT NOT NULL,
    extras             BLOB,             -- attributes and trace header
    deduplication_id   TEXT,
    dead_letter_source TEXT,
    body               TEXT NOT NULL
) STRICT;

-- Elsewhere messages lie in the order in which they were sent; dead letters keep the time of their first sending.
CREATE INDEX message_dead_letter ON message (position >> 43, sent_at_ms) WHERE dead_letter_source IS NOT NULL;

-- What becomes of a message. A fresh one (no delay, no group, never received) has no row here.
CREATE TABLE delivery (
    position             INTEGER PRIMARY KEY,
    partition            INTEGER NOT NULL,
    state                INTEGER NOT NULL,   -- 0 visible, 1 leased, 2 delayed
    visible_at_ms        INTEGER NOT NULL,
    leased_at_ms         INTEGER,
    receipt              INTEGER NOT NULL,
    receive_count        INTEGER NOT NULL,
    first_received_at_ms INTEGER,
    group_id             INTEGER
) STRICT;

CREATE INDEX delivery_hidden ON delivery (partition, visible_at_ms, state) WHERE state > 0;
CREATE INDEX delivery_returned ON delivery (partition) WHERE state = 0 AND group_id IS NULL;
-- By the group's sign: on FIFO all of a group's messages in their order, whose leases then leave the index alone; on
-- standard queues the visible ones.
CREATE INDEX delivery_fifo ON delivery (group_id) WHERE group_id < 0;
CREATE INDEX delivery_fair ON delivery (group_id) WHERE group_id > 0 AND state = 0;

-- A group that has messages, with a negative id on FIFO queues and a positive one on standard queues.
CREATE TABLE message_group (
    id          INTEGER PRIMARY KEY,
    partition   INTEGER NOT NULL,
    name        TEXT NOT NULL,
    head        INTEGER,            -- FIFO: its first message; standard: its first visible one
    in_flight   INTEGER NOT NULL,   -- standard: how many of its deliveries are in state 1
    delayed     INTEGER NOT NULL,   -- standard: how many of its deliveries are in state 2
    ready_at_ms INTEGER,            -- FIFO: when its head may be leased; standard: null
    leased_to   INTEGER,            -- FIFO: the last position of its last lease; none beyond is leased
    UNIQUE (partition, name)
) STRICT;

CREATE INDEX message_group_ready ON message_group (partition, ready_at_ms, head) WHERE ready_at_ms IS NOT NULL;
CREATE INDEX message_group_fair ON message_group (partition, in_flight, head)
    WHERE ready_at_ms IS NULL AND head IS NOT NULL;

-- Answers kept for retries, in the order of their making, which is that of their going. They are found by key through
-- an index in memory (see outcomes.py): one on disk would dirty a page for every request.
CREATE TABLE outcome (
    id     INTEGER PRIMARY KEY,
    at_ms  INTEGER NOT NULL,
    key    BLOB NOT NULL,
    answer BLOB NOT NULL
) STRICT;

-- Deduplication ids of FIFO queues, in the order of their making. `scope` is the group's name, or empty for the queue.
CREATE TABLE deduplication (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id         INTEGER NOT NULL,
    scope            TEXT NOT NULL,
    deduplication_id TEXT NOT NULL,
    at_ms            INTEGER NOT NULL,
    message_id       TEXT NOT NULL,
    sequence         INTEGER NOT NULL,
    UNIQUE (queue_id, scope, deduplication_id)
) STRICT;

CREATE TABLE move_task (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    source_id      INTEGER NOT NULL,
    destination_id INTEGER,
    source         TEXT NOT NULL,      -- both as ARNs
    destination    TEXT,
    rate           INTEGER,
    status         TEXT NOT NULL,
    moved          INTEGER NOT NULL,
    to_move        INTEGER NOT NULL,
    started_at_ms  INTEGER NOT NULL,
    due_at_ms      INTEGER NOT NULL,   -- when the next step may be done
    failure        TEXT
) STRICT;

CREATE INDEX move_task_source ON move_task (source_id, number);
CREATE UNIQUE INDEX move_task_running ON move_task (source_id) WHERE status = 'RUNNING';
