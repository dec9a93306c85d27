"""Several nodes on one database: what one does, the others see, and their consumers share the work."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict

import asyncpg
import pytest

from penstock.domain.limits import Limits
from penstock.domain.message import Message
from penstock.domain.queue import QueueAttributes
from penstock.store.port import Store
from penstock.store.postgres.pool import APPLICATION_NAME
from tests.support.postgres import PostgresServer
from tests.support.queues import (
    bodies,
    counts,
    dead_letters_to,
    delete,
    draft,
    hide,
    lease,
    lease_one,
    make_queue,
    on_both_kinds,
    release,
    send,
)
from tests.unit.store.postgres.conftest import OpenNode


@pytest.fixture
async def nodes(open_node: OpenNode) -> list[Store]:
    return [await open_node() for _ in range(2)]


@pytest.mark.parametrize(
    ("name", "grouped"), [("orders", False), ("orders", True), ("orders.fifo", True)], ids=["standard", "fair", "fifo"]
)
async def test_no_message_is_leased_to_two_consumers(nodes: list[Store], name: str, grouped: bool) -> None:
    queue = await make_queue(nodes[0], name)
    texts = [str(number) for number in range(1_000)]
    for first in range(0, 1_000, 100):
        drafts = [draft(text, group=text if grouped else None) for text in texts[first : first + 100]]
        await send(nodes[0], queue, *drafts)
    given: Counter[str] = Counter()

    async def consume(node: Store) -> None:
        while messages := await lease(node, queue, 3, lease_ms=600_000):
            given.update(bodies(messages))

    async with asyncio.timeout(30):
        await asyncio.gather(*(consume(node) for node in nodes for _ in range(4)))
    assert given == Counter(texts)


async def test_fifo_order_holds_across_nodes(nodes: list[Store]) -> None:
    """Senders and receivers on all nodes at once: each group is seen in the order of its sequence numbers."""
    queue = await make_queue(nodes[0], "orders.fifo")
    groups = [f"g{number}" for number in range(5)]
    total = 4 * 25 * len(groups)
    seen: dict[str, list[int]] = defaultdict(list)
    held: set[str] = set()

    async def produce(node: Store) -> None:
        for _ in range(25):
            await node.append(queue, [draft("x", group=group) for group in groups])

    async def consume(node: Store) -> None:
        while sum(map(len, seen.values())) < total:
            messages = await lease(node, queue, 4, lease_ms=600_000)
            mine = {message.group for message in messages if message.group is not None}
            assert not mine & held, "a group is given to one consumer at a time"
            held.update(mine)
            for message in messages:
                assert message.group is not None
                assert message.sequence is not None
                seen[message.group].append(message.sequence)
            held.difference_update(mine)
            await delete(node, queue, *messages)

    async with asyncio.timeout(40):
        await asyncio.gather(*(produce(node) for node in nodes * 2), *(consume(node) for node in nodes * 2))
    assert {group: len(sequences) for group, sequences in seen.items()} == dict.fromkeys(groups, 100)
    for sequences in seen.values():
        assert sequences == sorted(sequences)


async def test_a_sender_waits_for_another_that_has_drawn_its_number(
    nodes: list[Store], postgres_server: PostgresServer, database: str
) -> None:
    """Or the later number would be seen first, and what has the earlier one would come out of order."""
    queue = await make_queue(nodes[0], "orders.fifo")
    slow = await asyncpg.connect(postgres_server.dsn(database), server_settings={"application_name": APPLICATION_NAME})
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute(
        f"""
        SELECT * FROM penstock.append_fifo(NULL, 1000, 1000, '{{k}}', '{{{queue.id}}}', '{{k}}', '{{100000}}',
            '{{1}}', '{{0}}', '{{slow}}', '{{slow}}', '{{NULL}}', '{{NULL}}', '{{g}}', '{{NULL}}', '{{NULL}}')
        """
    )
    quick = asyncio.create_task(send(nodes[0], queue, "quick", group="g"))
    waiting = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND wait_event = 'advisory'"
    async with asyncio.timeout(30):
        while await asyncio.to_thread(postgres_server.psql, waiting) == "0":
            assert not quick.done()
    await send(nodes[1], queue, "other", group="another")
    assert bodies(await lease(nodes[1], queue)) == ["other"]
    await transaction.commit()
    await slow.close()
    await quick
    assert bodies(await lease(nodes[1], queue)) == ["slow", "quick"]


async def test_a_deduplication_id_sent_to_both_nodes_is_stored_once(nodes: list[Store]) -> None:
    queue = await make_queue(nodes[0], "orders.fifo")
    answers = await asyncio.gather(
        *(node.append(queue, [draft("a", group="g", deduplication_id="1")]) for node in nodes * 10)
    )
    assert answers == [answers[0]] * 20
    assert await counts(nodes[1], queue) == (1, 0, 0)


@on_both_kinds
async def test_an_attempt_tried_on_both_nodes_is_stored_once(nodes: list[Store], name: str) -> None:
    queue, key = await make_queue(nodes[0], name), b"one attempt, two nodes"
    answers = await asyncio.gather(
        *(node.append(queue, [draft(str(number), group="g")], attempt=key) for number, node in enumerate(nodes * 5))
    )
    assert answers == [answers[0]] * 10
    assert await counts(nodes[0], queue) == (1, 0, 0)


@on_both_kinds
async def test_a_lease_tried_on_both_nodes_is_one(nodes: list[Store], name: str) -> None:
    queue, key = await make_queue(nodes[0], name), b"one attempt, two nodes"
    for number in range(10):
        await send(nodes[0], queue, str(number), group=str(number))
    answers = await asyncio.gather(*(lease(node, queue, 2, attempt=key) for node in nodes * 3))
    assert answers == [answers[0]] * 6
    assert await counts(nodes[0], queue) == (8, 2, 0)


@on_both_kinds
async def test_a_send_wakes_listeners_of_other_nodes(nodes: list[Store], name: str) -> None:
    queue = await make_queue(nodes[0], name)
    heard = [await listening(node) for node in nodes]
    await send(nodes[0], queue, "a", "b")
    async with asyncio.timeout(30):
        # A FIFO group serves one receive at a time.
        served = (queue.id, 1 if queue.fifo else 2)
        assert await heard[0].get() == served
        assert await heard[1].get() == served
    [message, _] = await lease(nodes[1], queue)
    await nodes[1].release(queue, [])
    await delete(nodes[1], queue, message)


class Holders:
    """Who holds what of one FIFO queue, as its consumers see it: noted after an answer, forgotten before a call."""

    def __init__(self, total: int) -> None:
        self.left = total
        self.held: set[tuple[str, int]] = set()

    def take(self, messages: list[Message]) -> None:
        """Take over what came, and check that nobody holds it, nor anything before it in its group."""
        came = [_place(message) for message in messages]
        for group, number in came:
            earlier = [place for place in self.held if place[0] == group and place[1] <= number]
            assert not earlier, f"{group} {number} came while {earlier} were held"
        for group in {group for group, _ in came}:
            numbers = [number for each, number in came if each == group]
            assert numbers == sorted(numbers), f"{group} came as {numbers}"
        self.held.update(came)

    def let_go(self, *messages: Message) -> None:
        self.held.difference_update(map(_place, messages))


def _place(message: Message) -> tuple[str, int]:
    group, _, number = message.body.partition(".")
    return group, int(number)


@pytest.mark.parametrize("seed", range(3))
async def test_a_group_gives_what_is_before_its_first_hidden_message_across_nodes(
    nodes: list[Store], seed: int
) -> None:
    """Consumers on all nodes make some of what they hold visible again, and hide some for longer, in any order."""
    queue = await make_queue(nodes[0], "orders.fifo")
    chance = random.Random(seed)
    for group in ("a", "b"):
        await send(nodes[0], queue, *(draft(f"{group}.{number}", group=group) for number in range(40)))
    holders = Holders(80)

    async def consume(node: Store) -> None:
        while holders.left:
            messages = await lease(node, queue, chance.randint(1, 5), lease_ms=600_000)
            holders.take(messages)
            chance.shuffle(messages)
            for message in messages:
                deed = chance.randrange(4)
                if deed == 0:
                    assert await hide(node, queue, message, lease_ms=900_000) == [None]
                holders.let_go(message)
                if deed == 1:
                    assert await hide(node, queue, message, lease_ms=0) == [None]
                elif deed == 2:
                    await release(node, queue, message)
                else:
                    assert await delete(node, queue, message) == [None]
                    holders.left -= 1

    async with asyncio.timeout(60):
        await asyncio.gather(*(consume(node) for node in nodes for _ in range(3)))
    assert await counts(nodes[0], queue) == (0, 0, 0)


async def listening(node: Store) -> asyncio.Queue[tuple[int, int]]:
    heard: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    node.listen(lambda queue_id, count: heard.put_nowait((queue_id, count)))
    return heard


async def test_a_dead_letter_wakes_listeners_of_its_new_queue(nodes: list[Store]) -> None:
    dead = await make_queue(nodes[0], "dead")
    queue = await make_queue(nodes[0], "orders", redrive=dead_letters_to("dead", after=1))
    await send(nodes[0], queue, "a")
    await lease(nodes[0], queue, lease_ms=0)
    heard = await listening(nodes[1])
    assert await lease(nodes[0], queue) == []
    async with asyncio.timeout(30):
        while await heard.get() != (dead.id, 1):
            pass


async def test_a_queue_changed_on_one_node_is_seen_on_the_others(nodes: list[Store]) -> None:
    queue = await make_queue(nodes[0])
    assert await nodes[1].find_queue(queue.name) == queue
    saved = await nodes[0].save_queue(queue, attributes=QueueAttributes(delay_s=1))
    heard = await listening(nodes[1])
    await send(nodes[0], queue, "a")
    async with asyncio.timeout(30):
        await heard.get()
    # Notifications come in the order of commits: the change was heard before the send.
    assert await nodes[1].find_queue(queue.name) == saved


@on_both_kinds
async def test_nodes_together_stay_within_a_small_in_flight_limit(open_node: OpenNode, name: str) -> None:
    limits = Limits(in_flight_standard_max=20, in_flight_fifo_max=20)
    nodes = [await open_node(limits=limits) for _ in range(2)]
    queue = await make_queue(nodes[0], name)
    await send(nodes[0], queue, *(draft(str(number), group=str(number)) for number in range(100)))
    answers = await asyncio.gather(*(lease(node, queue, 3) for node in nodes * 10), return_exceptions=True)
    given = [message for answer in answers if isinstance(answer, list) for message in answer]
    assert len(given) == 20
    assert await counts(nodes[0], queue) == (80, 20, 0)


@on_both_kinds
async def test_a_purge_on_one_node_loses_nothing_that_another_is_told_is_stored_later(
    open_node: OpenNode, name: str
) -> None:
    """The node that appends has the queue in its cache; what it appends after the purge must stay."""
    limits = Limits(purge_interval_ms=0)
    nodes = [await open_node(limits=limits) for _ in range(2)]
    queue = await make_queue(nodes[0], name)
    for number in range(10):
        await send(nodes[1], queue, "before")
        await nodes[0].purge_queue(queue)
        await send(nodes[1], queue, f"after {number}")
        assert (await lease_one(nodes[0], queue)).body == f"after {number}"
