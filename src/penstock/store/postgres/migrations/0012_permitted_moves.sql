-- A move task without a destination remembers the ARNs of the queues that it may move messages to. NULL is any.
ALTER TABLE penstock.move_task ADD COLUMN permitted text[];

-- They are made anew with one parameter more.
DROP FUNCTION IF EXISTS penstock.move_destinations(boolean, int, text[]);
DROP FUNCTION IF EXISTS penstock.move(int, bigint, int, bigint, int, text[]);
DROP FUNCTION IF EXISTS penstock.move_fifo(int, bigint, int, bigint, int, text[]);
