-- A FIFO group is ready when its first message is visible, whatever becomes of those behind it.
UPDATE message_group SET ready_at_ms = (SELECT visible_at_ms FROM delivery WHERE position = head) WHERE ready_at_ms IS NOT NULL;
ALTER TABLE message_group DROP COLUMN leased_to;
