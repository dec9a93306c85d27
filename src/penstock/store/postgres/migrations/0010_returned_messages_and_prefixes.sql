-- Messages that were received before are leased before those that never were: `returned` tells them apart in the indexes.
ALTER TABLE penstock.message ADD COLUMN returned boolean NOT NULL GENERATED ALWAYS AS (receipt > 0) STORED;
DROP INDEX penstock.message_due, penstock.message_tenant;
CREATE INDEX message_due ON penstock.message (due_partition, returned, visible_at, position);
CREATE INDEX message_tenant ON penstock.message (partition, tenant, returned, visible_at, position) WHERE tenant IS NOT NULL;

-- A FIFO group is ready when its first message is visible, whatever becomes of those behind it. `leased_until` is set where
-- some of them are leased for longer than that: without it they could not be counted without walking over all groups.
ALTER TABLE penstock.fifo_group ADD COLUMN leased_until bigint;
CREATE INDEX fifo_group_leased ON penstock.fifo_group (due_partition, leased_until) WHERE leased_until IS NOT NULL;
UPDATE penstock.fifo_group g
   SET ready_at = greatest(h.visible_at, penstock.now_ms(NULL)), leased_until = g.ready_at
  FROM (SELECT DISTINCT ON (m.group_id) m.group_id, m.visible_at FROM penstock.fifo_message m
         ORDER BY m.group_id, m.position) h
 WHERE h.group_id = g.id AND g.leased_to > 0 AND g.ready_at > greatest(h.visible_at, penstock.now_ms(NULL));

DROP FUNCTION IF EXISTS penstock.floors(bigint, int[], boolean[], bigint[]);
DROP FUNCTION IF EXISTS penstock.fair_choice(int, bigint, bigint, int);
DROP FUNCTION IF EXISTS penstock.evict(int, bigint, bigint, bigint, int, int, text, bigint[]);
