-- A move task without a destination remembers the queues that it may move messages to, as a JSON list of ARNs. NULL is any.
ALTER TABLE move_task ADD COLUMN permitted TEXT;
