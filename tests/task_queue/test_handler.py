"""What TaskQueueHandler does beyond the original: reports, loops, redrive, bad input."""

from __future__ import annotations

import asyncio
import logging
from types import MappingProxyType
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from penstock import Snooze, TaskQueueHandler
from penstock.client.errors import ConsumerInvalid, QueueUnusable
from penstock.client.task_queue import scripts
from penstock.client.task_queue.scripts import FailedTask
from tests.support.sqs_services import ONCE, REGION, SESSION, Refusing, SqsService, quick_clock, until
from tests.task_queue.handling import bodies, echo, fail, messages, process

TASKS = [{"name": f"t{number}"} for number in range(12)]


def test_entries_that_fail_for_the_moment_are_sent_again(sqs: SqsService) -> None:
    url, client = sqs.create("tasks.fifo"), sqs.new_client()
    refusing = Refusing(client, "SendMessageBatch", times=1).entries(lambda entry: entry["Id"] in "13")
    enqueued = TaskQueueHandler(client, url).enqueue_tasks("doc", TASKS, {})
    client.close()
    assert (enqueued, enqueued.failed) == (12, ())
    assert [len(call["Entries"]) for call in refusing.calls] == [10, 2, 2]
    assert sum(sqs.counts(url)) == 12


def test_entries_that_fail_for_good_are_reported(
    sqs: SqsService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "PAUSE_S", 0.001)
    url, client = sqs.create("tasks.fifo"), sqs.new_client()
    Refusing(client, "SendMessageBatch", times=100).entries(lambda entry: "t3" in entry["MessageBody"])
    enqueued = TaskQueueHandler(client, url).enqueue_tasks("doc", TASKS, {})
    client.close()
    assert enqueued == 11
    assert enqueued.failed == (FailedTask("t3", "InternalError", "refused by a test"),)
    assert sum(sqs.counts(url)) == 11
    assert any("1 of 12 tasks were not enqueued: t3" in record.message for record in caplog.records)


def test_a_later_call_that_fails_is_reported_and_repeating_completes_it(sqs: SqsService) -> None:
    url, client = sqs.create("tasks.fifo"), sqs.new_client()
    calls = 0

    def second_fails(**_: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise EndpointConnectionError(endpoint_url=sqs.url)

    client.meta.events.register("before-send.sqs.SendMessageBatch", second_fails)
    handler = TaskQueueHandler(client, url)
    enqueued = handler.enqueue_tasks("doc", TASKS, {})
    assert (enqueued, [task.name for task in enqueued.failed]) == (10, ["t10", "t11"])
    assert handler.enqueue_tasks("doc", TASKS, {}).failed == ()
    client.close()
    assert sum(sqs.counts(url)) == 12


def test_an_endpoint_that_goes_away_is_not_asked_for_every_ten_tasks(sqlite_sqs: SqsService) -> None:
    """Each of these calls may take minutes to fail."""
    url, client = sqlite_sqs.create("tasks.fifo"), sqlite_sqs.new_client()
    calls = 0

    def go_away(**_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise EndpointConnectionError(endpoint_url=sqlite_sqs.url)

    client.meta.events.register("before-send.sqs.SendMessageBatch", go_away)
    tasks = [{"name": f"t{number}"} for number in range(35)]
    enqueued = TaskQueueHandler(client, url).enqueue_tasks("doc", tasks, {})
    client.close()
    assert (enqueued, [task.name for task in enqueued.failed]) == (10, [f"t{number}" for number in range(10, 35)])
    assert calls == 2


def test_tasks_may_be_any_iterable_of_mappings(sqlite_sqs: SqsService) -> None:
    url = sqlite_sqs.create("tasks.fifo")
    tasks = (MappingProxyType({"name": name}) for name in "ab")
    assert TaskQueueHandler(sqlite_sqs.client, url).enqueue_tasks("doc", tasks, {}) == 2
    assert {body["total_tasks"] for body in bodies(sqlite_sqs, url)} == {2}


def test_another_run_metadata_or_config_is_another_task(sqs: SqsService) -> None:
    url = sqs.create("tasks.fifo")
    handler = TaskQueueHandler(sqs.client, url)
    handler.enqueue_tasks("doc", [{"name": "a"}], {})
    handler.enqueue_tasks("doc", [{"name": "a"}], {}, run="again")
    handler.enqueue_tasks("doc", [{"name": "a"}], {"x": 1})
    handler.enqueue_tasks("doc", [{"name": "a", "config": {"y": 2}}], {})
    assert sum(sqs.counts(url)) == 4
    ids = [message["Attributes"]["MessageDeduplicationId"] for message in messages(sqs, url)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("entity", "tasks", "metadata", "said"),
    [
        ("doc", [{}], {}, "Task number 1 has no name"),
        ("doc", [{"name": "a"}, {"name": ""}], {}, "Task number 2 has no name"),
        ("doc", [{"name": "a"}, {"name": 7}], {}, "Task number 2 has no name"),
        ("doc", ["a"], {}, "Task number 1 has no name"),
        ("doc", {"name": "a"}, {}, "list of dicts"),
        ("doc", [{"name": "a\x00"}], {}, "does not take"),
        ("", [{"name": "a"}], {}, "entity_id"),
        (None, [{"name": "a"}], {}, "entity_id"),
        (True, [{"name": "a"}], {}, "entity_id"),
        ("doc", [{"name": "a", "config": {1, 2}}], {}, "JSON"),
        ("doc", [{"name": "a"}], {"x": object()}, "JSON"),
        ("doc", [{"name": "a", "config": float("nan")}], {}, "JSON"),
        ("doc", None, {}, "list of dicts"),
        ("doc", 7, {}, "list of dicts"),
        ("doc", [{"name": "a"}, {"name": "b", "config": "x" * 1_048_576}], {}, "1,048,576"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(
    sqlite_sqs: SqsService, entity: Any, tasks: Any, metadata: Any, said: str
) -> None:
    url = sqlite_sqs.create("tasks.fifo")
    with pytest.raises(ConsumerInvalid, match=said):
        TaskQueueHandler(sqlite_sqs.client, url).enqueue_tasks(entity, tasks, metadata)
    assert sqlite_sqs.counts(url) == (0, 0)


def test_large_tasks_are_split_over_calls(sqs: SqsService) -> None:
    url = sqs.create("tasks.fifo", MaximumMessageSize="1048576") if sqs.ours else sqs.create("tasks.fifo")
    large = "x" * (400_000 if sqs.ours else 100_000)
    tasks = [{"name": f"t{number}", "config": large} for number in range(5)]
    assert TaskQueueHandler(sqs.client, url).enqueue_tasks("doc", tasks, {}) == 5
    assert sum(sqs.counts(url)) == 5


def test_no_tasks_are_no_call(sqlite_sqs: SqsService) -> None:
    assert TaskQueueHandler(sqlite_sqs.client, "http://localhost/none.fifo").enqueue_tasks("doc", [], {}) == 0


@pytest.mark.parametrize("urls", [("http://localhost/tasks",), ("http://localhost/a.fifo", "http://localhost/dead")])
def test_queues_that_are_not_fifo_are_refused(sqlite_sqs: SqsService, urls: tuple[str, ...]) -> None:
    with pytest.raises(ConsumerInvalid, match="not a FIFO queue"):
        TaskQueueHandler(sqlite_sqs.client, *urls)


async def test_a_queue_that_is_missing_is_an_error_that_says_so(sqs: SqsService) -> None:
    missing = f"{sqs.url}/123456789012/none.fifo"
    handler = TaskQueueHandler(sqs.client, missing, missing)

    async def run() -> None:
        await handler.process_one(echo)

    with pytest.raises(ClientError) as enqueueing:
        handler.enqueue_tasks("doc", TASKS, {})
    with pytest.raises(ClientError) as processing:
        await run()
    with pytest.raises(ClientError) as looking:
        handler.get_dlq_messages()
    with pytest.raises(ClientError) as redriving:
        handler.redrive()
    for raised in (enqueueing, processing, looking, redriving):
        assert raised.value.__notes__ == [f"There is no queue {missing}: check the URL, the region and the account."]
    with pytest.raises(QueueUnusable, match="There is no queue"):
        await handler.run(echo)


async def test_an_endpoint_that_is_away_is_an_error_that_says_so() -> None:
    client = SESSION.client("sqs", endpoint_url="http://127.0.0.1:1", config=ONCE)
    handler = TaskQueueHandler(client, "http://127.0.0.1:1/000000000000/tasks.fifo")
    with pytest.raises(EndpointConnectionError) as raised:
        handler.enqueue_tasks("doc", TASKS, {})
    assert "cannot be reached" in raised.value.__notes__[0]
    with pytest.raises(QueueUnusable, match="cannot be reached"):
        await handler.run(echo)
    client.close()


async def test_a_loop_runs_tasks_at_once_until_it_is_stopped(sqs: SqsService) -> None:
    url = sqs.create("tasks.fifo")
    handler = TaskQueueHandler(sqs.client, url, clock=quick_clock())
    handler.wait_time = 0
    handler.enqueue_tasks("doc", TASKS[:4], {"tenant": "t"})
    stop, together, begun = asyncio.Event(), asyncio.Event(), set[str]()

    async def work(task_name: str, metadata: dict[str, str], extra: int, **_: Any) -> None:
        assert (metadata, extra) == ({"tenant": "t"}, 1)
        begun.add(task_name)
        if len(begun) == 4:
            together.set()
        await together.wait()

    running = asyncio.create_task(handler.run(work, concurrency=4, stop=stop, extra=1))
    await until(lambda: handler.counters.deleted == 4)
    stop.set()
    await running
    assert begun == {"t0", "t1", "t2", "t3"}
    assert sqs.counts(url) == (0, 0)


async def test_redrive_moves_dead_letters_back(ours: SqsService) -> None:
    url, dead = ours.create_with_dlq("tasks.fifo", 1)
    handler = TaskQueueHandler(ours.client, url, dead)
    handler.enqueue_tasks("doc", TASKS[:3], {})
    for _ in range(3):
        assert (await process(handler, fail))["status"] == "failed"
    ours.advance(10)
    assert ours.bodies(url) == []
    assert len(handler.get_dlq_messages()) == 3
    assert handler.redrive()
    await until(lambda: sum(ours.counts(url)) == 3)
    assert ours.counts(dead) == (0, 0)
    assert {body["task_name"] for body in bodies(ours, url)} == {"t0", "t1", "t2"}


def test_redrive_needs_a_dead_letter_queue(sqlite_sqs: SqsService) -> None:
    with pytest.raises(ConsumerInvalid, match="dlq_url"):
        TaskQueueHandler(sqlite_sqs.client, "http://localhost/tasks.fifo").redrive()


def test_dead_letters_that_are_held_can_be_deleted(ours: SqsService) -> None:
    dead = ours.create("dead.fifo")
    handler = TaskQueueHandler(ours.client, ours.create("tasks.fifo"), dead)
    ours.send(dead, "a")
    [letter] = handler.get_dlq_messages(hold=30)
    ours.client.delete_message(QueueUrl=dead, ReceiptHandle=letter["receipt_handle"])
    assert ours.counts(dead) == (0, 0)


@pytest.mark.parametrize("most", [0, 1_001, True, "10"])
def test_a_look_at_an_odd_number_of_messages_is_refused(sqlite_sqs: SqsService, most: Any) -> None:
    handler = TaskQueueHandler(sqlite_sqs.client, "http://localhost/tasks.fifo", "http://localhost/dead.fifo")
    with pytest.raises(ConsumerInvalid, match="max_messages"):
        handler.get_dlq_messages(most)


@pytest.mark.parametrize("hold", [-1, 43_201, 1.5, "30"])
def test_dead_letters_are_held_for_as_long_as_sqs_allows(sqlite_sqs: SqsService, hold: Any) -> None:
    handler = TaskQueueHandler(sqlite_sqs.client, "http://localhost/tasks.fifo", "http://localhost/dead.fifo")
    with pytest.raises(ConsumerInvalid, match="hold"):
        handler.get_dlq_messages(hold=hold)


@pytest.mark.parametrize("rate", [0, 501, "fast"])
def test_a_rate_that_sqs_does_not_take_is_refused(sqlite_sqs: SqsService, rate: Any) -> None:
    handler = TaskQueueHandler(sqlite_sqs.client, "http://localhost/tasks.fifo", "http://localhost/dead.fifo")
    with pytest.raises(ConsumerInvalid, match="rate"):
        handler.redrive(rate=rate)


def test_a_key_without_idempotency_is_refused(sqlite_sqs: SqsService) -> None:
    with pytest.raises(ConsumerInvalid, match="idempotency"):
        TaskQueueHandler(sqlite_sqs.client, "http://localhost/tasks.fifo", key=lambda message: message.id)


async def test_a_callback_that_awaits_what_was_cancelled_has_failed(sqlite_sqs: SqsService) -> None:
    handler = TaskQueueHandler(sqlite_sqs.client, sqlite_sqs.create("tasks.fifo"))
    handler.enqueue_tasks("doc", TASKS[:1], {})

    async def work(**_: Any) -> None:
        waiting = asyncio.create_task(asyncio.sleep(60))
        waiting.cancel()
        await waiting

    assert (await process(handler, work))["status"] == "failed"


@pytest.mark.parametrize("wrong", [{"visibility_timeout": 0}, {"visibility_timeout": 50_000}, {"wait_time": 21}])
async def test_timeouts_that_sqs_does_not_take_are_refused(sqlite_sqs: SqsService, wrong: dict[str, int]) -> None:
    handler = TaskQueueHandler(sqlite_sqs.client, "http://localhost/tasks.fifo")
    for name, value in wrong.items():
        setattr(handler, name, value)
    with pytest.raises(ConsumerInvalid, match=next(iter(wrong))):
        await handler.process_one(echo)


async def test_a_snoozed_task_has_not_failed(ours: SqsService) -> None:
    handler = TaskQueueHandler(ours.client, ours.create("tasks.fifo"))
    handler.enqueue_tasks("doc", TASKS[:1], {})

    async def later(**_: Any) -> None:
        raise Snooze(60)

    assert (await process(handler, later))["status"] == "snoozed"
    ours.advance(60)
    assert handler.get_queue_status()["messages_available"] == 1


async def test_what_a_cancelled_poll_brings_is_released(ours: SqsService) -> None:
    url = ours.create("tasks.fifo")
    client = ours.new_client()
    handler = TaskQueueHandler(client, url)
    polling = asyncio.Event()
    loop = asyncio.get_running_loop()
    client.meta.events.register("before-send.sqs.ReceiveMessage", lambda **_: loop.call_soon_threadsafe(polling.set))
    processing = asyncio.create_task(handler.process_one(echo))
    await polling.wait()
    processing.cancel()
    await asyncio.wait([processing])
    TaskQueueHandler(ours.client, url).enqueue_tasks("doc", TASKS[:1], {})
    await until(lambda: messages(ours, url))
    assert handler.counters.started == 0
    client.close()


def test_the_environment_names_the_queues(
    sqlite_sqs: SqsService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("AWS_DEFAULT_REGION", "SQS_TASK_QUEUE_URL", "SQS_DLQ_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConsumerInvalid, match="AWS_DEFAULT_REGION and SQS_TASK_QUEUE_URL"):
        TaskQueueHandler.from_env()
    url = sqlite_sqs.create("tasks.fifo")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("SQS_TASK_QUEUE_URL", url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", sqlite_sqs.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = TaskQueueHandler.from_env(max_backoff=10)
    caplog.set_level(logging.INFO, "penstock.task_queue")
    assert handler.dlq_url is None
    assert handler.enqueue_tasks("doc", TASKS, {}) == 12
    assert any("Enqueued 12/12 tasks for entity doc" in record.message for record in caplog.records)
    handler.sqs_client.close()
