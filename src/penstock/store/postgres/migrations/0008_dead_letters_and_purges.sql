-- Dead letters keep how often they were received elsewhere, and a purge ends deduplication: its ids are kept by partition,
-- which a purge replaces, and no longer by queue.
ALTER TABLE penstock.message ADD COLUMN received_elsewhere int;
ALTER TABLE penstock.fifo_message ADD COLUMN received_elsewhere int;

ALTER TABLE penstock.deduplication ADD COLUMN partition int;
UPDATE penstock.deduplication d SET partition = q.partition FROM penstock.queue q WHERE q.id = d.queue_id;
DELETE FROM penstock.deduplication WHERE partition IS NULL;
ALTER TABLE penstock.deduplication DROP COLUMN queue_id, ADD PRIMARY KEY (partition, scope, deduplication_id);
