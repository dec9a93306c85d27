"""`Idempotency` on its records is a hook for consumers and task queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Idempotency, Message, SQLiteRecords, TaskQueueHandler
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import SqsService, until


@pytest.fixture
def idem(tmp_path: Path) -> Idempotency:
    return Idempotency(SQLiteRecords(str(tmp_path / "records.db")), lease=60)


@pytest.mark.parametrize("in_thread", [True, False])
async def test_one_payload_delivered_twice_runs_once(
    sqlite_sqs: SqsService, idem: Idempotency, in_thread: bool
) -> None:
    url = sqlite_sqs.create("orders")
    sqlite_sqs.send(url, '{"id": 17, "try": 1}', '{"id": 17, "try": 2}')
    runs: list[str] = []

    def handle(message: Message) -> str:
        runs.append(message.body)
        return "charged"

    async def handle_async(message: Message) -> str:
        return handle(message)

    handler = handle if in_thread else handle_async
    async with consuming(sqlite_sqs, url, handler, concurrency=1, idempotency=idem) as running:
        await until(lambda: running.consumer.counters.deleted == 2)
    assert len(runs) == 1
    assert [event.result for event in running.of("done")] == ["charged", "charged"]


async def test_a_key_that_another_holder_has_makes_its_message_wait(sqlite_sqs: SqsService, idem: Idempotency) -> None:
    url = sqlite_sqs.create("orders")
    sqlite_sqs.send(url, '{"id": 17}', '{"id": 17, "again": true}')
    runs = 0

    async def handle(message: Message) -> None:
        nonlocal runs
        runs += 1
        await until(lambda: running.of("snoozed"))

    async with consuming(sqlite_sqs, url, handle, visibility=900, idempotency=idem) as running:
        await until(lambda: running.consumer.counters.deleted == 1)
        assert 0 < (running.of("snoozed")[0].delay_s or 0) <= 60
        sqlite_sqs.advance(60)
        await until(lambda: running.consumer.counters.deleted == 2)
    assert (runs, running.consumer.counters.failed) == (1, 0)


async def test_a_task_enqueued_again_later_is_not_run_again(sqlite_sqs: SqsService, idem: Idempotency) -> None:
    handler = TaskQueueHandler(sqlite_sqs.client, sqlite_sqs.create("tasks.fifo"), idempotency=idem)
    runs = 0

    async def charge(**_: Any) -> dict[str, int]:
        nonlocal runs
        runs += 1
        return {"run": runs}

    results = []
    for _ in range(2):
        handler.enqueue_tasks("order-17", [{"name": "charge"}], {})
        results.append((await handler.process_one(charge) or {})["result"])
        sqlite_sqs.advance(301)
    handler.enqueue_tasks("order-17", [{"name": "charge"}], {}, run=2)
    results.append((await handler.process_one(charge) or {})["result"])
    assert results == [{"run": 1}, {"run": 1}, {"run": 2}]


def untyped(*_: Any, **__: Any):  # type: ignore[no-untyped-def] # noqa: ANN201 - as most callbacks are written
    return [1]


def broad(*_: Any, **__: Any) -> object:
    return [1]


@pytest.mark.parametrize("callback", [untyped, broad])
async def test_callbacks_need_no_annotations(sqlite_sqs: SqsService, idem: Idempotency, callback: Any) -> None:
    handler = TaskQueueHandler(sqlite_sqs.client, sqlite_sqs.create("tasks.fifo"), idempotency=idem)
    for run in (1, 2):
        handler.enqueue_tasks("order-17", [{"name": "charge"}], {})
        assert await handler.process_one(callback) == {
            "entity_id": "order-17",
            "task_name": "charge",
            "result": [1],
            "status": "completed",
        }, f"run {run}"
        sqlite_sqs.advance(301)
    url = sqlite_sqs.create("orders")
    sqlite_sqs.send(url, '{"id": 17}')
    async with consuming(sqlite_sqs, url, callback, idempotency=idem) as running:
        await until(lambda: running.consumer.counters.deleted)
    assert running.consumer.counters.failed == 0
