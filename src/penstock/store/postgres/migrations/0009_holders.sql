-- Which of the requests with one attempt key holds a leased message: 0 for the one that leased it, the number of a retry, or
-- null if that is not known. Only the holder may give the message back. It replaces `again`, which was kept with the outcome.
ALTER TABLE penstock.message ADD COLUMN holder smallint DEFAULT 0;
ALTER TABLE penstock.fifo_message ADD COLUMN holder smallint DEFAULT 0;
ALTER TABLE penstock.lease_outcome DROP COLUMN again;

-- These take or return more than before.
DROP FUNCTION IF EXISTS penstock.lease;
DROP FUNCTION IF EXISTS penstock.lease_fifo;
DROP FUNCTION IF EXISTS penstock.lease_again;
DROP FUNCTION IF EXISTS penstock.lease_fifo_again;
DROP FUNCTION IF EXISTS penstock.release;
DROP FUNCTION IF EXISTS penstock.release_fifo;
