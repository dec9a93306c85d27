-- Dead letters keep how often they were received elsewhere, and a purge ends deduplication: what was sent up to it does not
-- count any more.
ALTER TABLE delivery ADD COLUMN received_elsewhere INTEGER;
ALTER TABLE queue ADD COLUMN purged_up_to INTEGER NOT NULL DEFAULT 0;  -- The last sequence number before the last purge.
