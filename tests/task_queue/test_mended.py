"""What the original gets wrong and ours does not: each test fails with the original."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.testing import ManualClock
from tests.support.sqs_services import Refusing, SqsService, quick_clock, until
from tests.task_queue.handling import MENDED, MENDED_ON_MOTO, bodies, echo, fail, made, messages, passing_time, process

on_ours = pytest.mark.parametrize(("ours", "kind"), MENDED, indirect=["ours"])
on_all = pytest.mark.parametrize(("sqs", "kind"), [*MENDED, MENDED_ON_MOTO], indirect=["sqs"])
"""For what depends on how SQS groups, deduplicates and hides: a service that is not ours has to agree."""
TASKS = [{"name": "a"}, {"name": "b"}]


@on_all
def test_a_repeated_call_enqueues_nothing_twice(sqs: SqsService, kind: Any) -> None:
    url = sqs.create("tasks.fifo")
    handler = kind(sqs.client, url)
    assert handler.enqueue_tasks("doc", TASKS, {"x": 1}) == 2
    assert handler.enqueue_tasks("doc", TASKS, {"x": 1}) == 2
    assert sum(sqs.counts(url)) == 2


@on_all
def test_many_tasks_share_calls(sqs: SqsService, kind: Any) -> None:
    url = sqs.create("tasks.fifo")
    client = sqs.new_client()
    calls: list[str] = []
    client.meta.events.register("before-send.sqs", lambda event_name, **_: calls.append(event_name))
    assert kind(client, url).enqueue_tasks("doc", [{"name": f"t{number}"} for number in range(42)], {}) == 42
    client.close()
    assert len(calls) == 5
    assert sum(sqs.counts(url)) == 42


@on_ours
def test_nothing_is_sent_unless_everything_can_be(ours: SqsService, kind: Any) -> None:
    url = ours.create("tasks.fifo")
    with pytest.raises((ValueError, KeyError)):
        kind(ours.client, url).enqueue_tasks("doc", [*TASKS, {"config": {}}], {})
    assert ours.counts(url) == (0, 0)


@on_ours
def test_one_name_twice_is_an_error(ours: SqsService, kind: Any) -> None:
    url = ours.create("tasks.fifo")
    with pytest.raises(ValueError, match="'a'"):
        kind(ours.client, url).enqueue_tasks("doc", [{"name": "a"}, {"name": "a"}], {})


@on_all
def test_names_with_dashes_share_no_group(sqs: SqsService, kind: Any) -> None:
    url = sqs.create("tasks.fifo")
    handler = kind(sqs.client, url)
    handler.enqueue_tasks("a-b", [{"name": "c"}], {})
    handler.enqueue_tasks("a", [{"name": "b-c"}], {})
    groups = {message["Attributes"]["MessageGroupId"] for message in messages(sqs, url)}
    assert len(groups) == 2
    assert "a-b-c" in groups


@on_ours
def test_long_and_odd_names_get_a_group_too(ours: SqsService, kind: Any) -> None:
    url = ours.create("tasks.fifo")
    handler = kind(ours.client, url)
    for entity in ("x" * 200, "x" * 201, "Maß und Zahl", "Maa und Zahl"):
        assert handler.enqueue_tasks(entity, [{"name": "a"}], {}) == 1
    groups = {message["Attributes"]["MessageGroupId"] for message in messages(ours, url)}
    assert len(groups) == 4


@on_ours
async def test_an_entity_that_is_a_number_works(ours: SqsService, kind: Any) -> None:
    handler = kind(ours.client, ours.create("tasks.fifo"))
    handler.enqueue_tasks(17, TASKS[:1], {})
    told = await process(handler)
    assert (told["entity_id"], told["status"]) == (17, "completed")


@on_ours
async def test_a_callback_may_have_a_metadata_argument_of_its_own(ours: SqsService, kind: Any) -> None:
    handler = kind(ours.client, ours.create("tasks.fifo"))
    handler.enqueue_tasks("doc", TASKS[:1], {"from": "the message"})
    told = await process(handler, echo, metadata="mine")
    assert (told["status"], told["result"]["metadata"]) == ("completed", "mine")


@on_ours
@pytest.mark.parametrize("body", ["not json", "[]", '{"entity_id": "doc"}', "null"])
async def test_a_bad_body_fails_as_a_task_does_and_reaches_the_dead_letters(
    ours: SqsService, kind: Any, body: str
) -> None:
    url, dead = ours.create_with_dlq("tasks.fifo", 2)
    handler = kind(ours.client, url, dead)
    ours.send(url, body)
    for _ in range(2):
        told = await process(handler)
        assert told["status"] == "failed"
        assert "body" in told["error"]
        ours.advance(900)
    with passing_time(ours):
        assert await process(handler) is None
    [letter] = handler.get_dlq_messages()
    assert letter["task_name"] is None


@on_ours
async def test_a_failure_comes_back_by_backoff(ours: SqsService, kind: Any) -> None:
    handler = kind(ours.client, ours.create("tasks.fifo"))
    handler.enqueue_tasks("doc", TASKS[:1], {})
    assert (await process(handler, fail))["status"] == "failed"
    ours.advance(2)
    assert handler.get_queue_status()["messages_available"] == 1


@on_ours
async def test_retries_are_counted(ours: SqsService, kind: Any) -> None:
    url, dead = ours.create_with_dlq("tasks.fifo", 3)
    handler = kind(ours.client, url, dead)
    handler.enqueue_tasks("doc", TASKS[:1], {})
    for _ in range(3):
        await process(handler, fail)
        ours.advance(900)
    with passing_time(ours):
        await process(handler)
    [letter] = handler.get_dlq_messages()
    assert letter["retry_count"] == 3


@on_all
async def test_cancelling_releases_the_task_at_once(sqs: SqsService, kind: Any) -> None:
    url = sqs.create("tasks.fifo")
    handler = kind(sqs.client, url)
    handler.enqueue_tasks("doc", TASKS[:1], {})
    began = asyncio.Event()

    async def work(**_: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    processing = asyncio.create_task(handler.process_one(work))
    await began.wait()
    processing.cancel()
    await asyncio.wait([processing])
    assert processing.cancelled()
    assert sqs.counts(url) == (1, 0)


@on_ours
async def test_work_that_outlasts_its_visibility_has_one_effect(ours: SqsService, kind: Any) -> None:
    url = ours.create("tasks.fifo")
    clock = ManualClock()
    handler = made(kind, ours.client, url, clock=clock)
    handler.enqueue_tasks("doc", TASKS[:1], {})
    effects: list[str] = []

    async def work(**_: Any) -> None:
        for _step in range(5):
            ours.advance(300)
            await clock.advance(seconds=300)
            if hasattr(handler, "counters"):
                extended = handler.counters.extended
                await until(lambda: handler.counters.extended > extended)  # noqa: B023 - awaited at once
        effects.append("here")
        if ours.bodies(url):
            effects.append("elsewhere")

    await process(handler, work)
    assert effects == ["here"]
    assert ours.counts(url) == (0, 0)


@on_ours
async def test_done_and_not_deleted_is_no_failure(ours: SqsService, kind: Any) -> None:
    url = ours.create("tasks.fifo")
    client = ours.new_client()
    Refusing(client, "DeleteMessage", times=100)
    Refusing(client, "DeleteMessageBatch", times=100)
    handler = made(kind, client, url, clock=quick_clock())
    handler.enqueue_tasks("doc", TASKS[:1], {})
    told = await process(handler)
    client.close()
    assert told["status"] == "undeleted"
    assert told["result"]["task_name"] == "a"
    assert "refused by a test" in told["error"]


@on_ours
async def test_a_delete_that_fails_once_is_tried_again(ours: SqsService, kind: Any) -> None:
    url = ours.create("tasks.fifo")
    client = ours.new_client()
    Refusing(client, "DeleteMessage", times=1)
    Refusing(client, "DeleteMessageBatch", times=1)
    handler = made(kind, client, url, clock=quick_clock())
    handler.enqueue_tasks("doc", TASKS[:1], {})
    assert (await process(handler))["status"] == "completed"
    client.close()
    assert ours.counts(url) == (0, 0)


@on_all
def test_a_second_look_at_dead_letters_sees_them_too(sqs: SqsService, kind: Any) -> None:
    dead = sqs.create("dead.fifo")
    handler = kind(sqs.client, sqs.create("tasks.fifo"), dead)
    sqs.send(dead, json.dumps({"entity_id": "doc", "task_name": "a"}))
    assert [len(handler.get_dlq_messages()) for _ in range(2)] == [1, 1]


@on_ours
def test_one_bad_dead_letter_hides_no_other(ours: SqsService, kind: Any) -> None:
    dead = ours.create("dead.fifo")
    handler = kind(ours.client, ours.create("tasks.fifo"), dead)
    ours.send(dead, "not json", group="a")
    ours.send(dead, json.dumps({"entity_id": "doc", "task_name": "a"}), group="b")
    assert sorted(str(letter["entity_id"]) for letter in handler.get_dlq_messages()) == ["None", "doc"]


@on_ours
def test_a_look_at_more_than_ten_dead_letters_works_and_hides_none(ours: SqsService, kind: Any) -> None:
    dead = ours.create("dead.fifo")
    handler = kind(ours.client, ours.create("tasks.fifo"), dead)
    for number in range(25):
        ours.send(dead, json.dumps({"entity_id": number, "task_name": "a"}), group=str(number))
    for most, seen in ((100, 25), (12, 12)):
        letters = handler.get_dlq_messages(most)
        assert len({letter["entity_id"] for letter in letters}) == seen
        assert ours.counts(dead) == (25, 0)


@on_ours
async def test_a_long_poll_does_not_block_the_event_loop(ours: SqsService, kind: Any) -> None:
    handler = kind(ours.client, ours.create("tasks.fifo"))
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    turning = asyncio.create_task(turn())
    await asyncio.sleep(0)
    with passing_time(ours):
        await process(handler)
    turning.cancel()
    assert turns > 1


@on_ours
async def test_a_callback_may_be_a_plain_function(ours: SqsService, kind: Any) -> None:
    handler = kind(ours.client, ours.create("tasks.fifo"))
    handler.enqueue_tasks("doc", TASKS[:1], {})
    assert (await process(handler, lambda **given: given["task_name"]))["result"] == "a"
    assert bodies(ours, handler.queue_url) == []
