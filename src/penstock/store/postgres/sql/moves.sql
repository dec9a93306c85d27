-- :start
INSERT INTO penstock.move_task (id, source_id, destination_id, source, destination, rate, permitted, status, to_move,
                                started_at, due_at)
SELECT $2, s.id, $4, $5, $6, $7, $8, 'RUNNING',
       CASE WHEN s.fifo
            THEN (SELECT count(*) FROM penstock.fifo_message m
                   WHERE m.partition = s.partition AND m.visible_at <= n.now AND m.sent_at > n.now - s.retention_ms)
            ELSE (SELECT count(*) FROM penstock.message m
                   WHERE m.due_partition = s.partition AND m.visible_at <= n.now AND m.sent_at > n.now - s.retention_ms) END,
       n.now, n.now
  FROM (SELECT penstock.now_ms($1) AS now) n, penstock.queue s
 WHERE s.id = $3
RETURNING *

-- :running
SELECT 1 FROM penstock.move_task WHERE source_id = $1 AND status = 'RUNNING'

-- :cancel
UPDATE penstock.move_task SET status = 'CANCELLED' WHERE id = $1 AND status = 'RUNNING' RETURNING *

-- :list
SELECT * FROM penstock.move_task WHERE source_id = $1 ORDER BY number DESC LIMIT $2

-- :due
SELECT number, rate, greatest(due_at - penstock.now_ms($1), 0) AS due_in FROM penstock.move_task
 WHERE status = 'RUNNING' ORDER BY due_at, number LIMIT $2

-- :advance
SELECT * FROM penstock.advance_move($1, $2, $3, $4)
