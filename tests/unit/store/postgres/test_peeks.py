"""Peeks read as little as they say, however much a queue holds."""

from __future__ import annotations

from penstock.store.postgres import PostgresStore
from tests.support.postgres import PostgresServer
from tests.support.queues import make_queue, on_both_kinds, send

# In one transaction, so that the second statement tells what the first one has read.
_READ_BY_A_PEEK = """
SELECT count(*) FROM penstock.peek(NULL, {queue}, 1000000000, 'visible', 0, 10, 100, 1000000);
SELECT sum(seq_tup_read) + sum(idx_tup_fetch) FROM pg_stat_xact_user_tables
 WHERE schemaname = 'penstock' AND relname IN ('message', 'fifo_message', 'body')
"""


@on_both_kinds
async def test_what_a_peek_reads_does_not_grow_with_the_queue(
    store: PostgresStore, postgres_server: PostgresServer, database: str, name: str
) -> None:
    queue = await make_queue(store, name)
    for _ in range(5):
        await send(store, queue, *["x"] * 400)
    answered, read = map(int, postgres_server.psql(_READ_BY_A_PEEK.format(queue=queue.id), database).split())
    assert answered == 10 + 1
    # Those that are looked at, and each of those that are shown once more, with its body, twice.
    assert read <= 100 + 3 * 10 + 10
