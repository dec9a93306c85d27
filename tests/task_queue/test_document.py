"""What the original handler's document promises, kept by the original and by ours."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.support.sqs_services import SqsService
from tests.task_queue.handling import BOTH, bodies, echo, fail, messages, passing_time, process

pytestmark = pytest.mark.parametrize("kind", BOTH)
FIELDS = [{"name": "yearBuilt", "config": {"unit": "year"}}, {"name": "roofType"}, {"name": "sprinklered"}]


def test_tasks_are_enqueued_with_all_their_fields(sqs: SqsService, kind: Any) -> None:
    url = sqs.create("tasks.fifo")
    handler = kind(sqs.client, url)
    assert handler.visibility_timeout == 900
    assert handler.enqueue_tasks("doc-123", FIELDS, {"organization": "acme"}) == 3
    stored = messages(sqs, url)
    assert {message["Attributes"]["MessageGroupId"] for message in stored} == {
        "doc-123-yearBuilt",
        "doc-123-roofType",
        "doc-123-sprinklered",
    }
    body = next(body for body in bodies(sqs, url) if body["task_name"] == "yearBuilt")
    assert datetime.fromisoformat(body.pop("timestamp")).tzinfo is not None
    assert body == {
        "entity_id": "doc-123",
        "task_name": "yearBuilt",
        "task_config": {"unit": "year"},
        "metadata": {"organization": "acme"},
        "retry_count": 0,
        "total_tasks": 3,
    }
    attributes = stored[0]["MessageAttributes"]
    assert attributes["entity_id"]["StringValue"] == "doc-123"
    assert set(attributes) == {"entity_id", "task_name"}


async def test_a_task_that_succeeds_is_deleted(sqs: SqsService, kind: Any) -> None:
    url = sqs.create("tasks.fifo")
    handler = kind(sqs.client, url)
    handler.enqueue_tasks("doc-123", FIELDS[:1], {"organization": "acme"})
    assert await process(handler, echo, extra=1) == {
        "entity_id": "doc-123",
        "task_name": "yearBuilt",
        "result": {
            "entity_id": "doc-123",
            "task_name": "yearBuilt",
            "task_config": {"unit": "year"},
            "metadata": {"organization": "acme"},
            "extra": 1,
        },
        "status": "completed",
    }
    assert sqs.counts(url) == (0, 0)


async def test_an_empty_queue_gives_nothing(ours: SqsService, kind: Any) -> None:
    handler = kind(ours.client, ours.create("tasks.fifo"))
    with passing_time(ours):
        assert await process(handler) is None


async def test_a_task_that_fails_returns_to_the_queue_and_in_the_end_to_the_dead_letters(
    ours: SqsService, kind: Any
) -> None:
    url, dead = ours.create_with_dlq("tasks.fifo", 3)
    handler = kind(ours.client, url, dead)
    handler.enqueue_tasks("doc-123", FIELDS[:1], {})
    for _ in range(3):
        assert await process(handler, fail) == {
            "entity_id": "doc-123",
            "task_name": "yearBuilt",
            "error": "yearBuilt is wrong",
            "status": "failed",
        }
        assert handler.get_queue_status() == {"messages_available": 0, "messages_in_flight": 1, "messages_delayed": 0}
        ours.advance(900)
    with passing_time(ours):
        assert await process(handler) is None
    [letter] = handler.get_dlq_messages()
    assert (letter["entity_id"], letter["task_name"]) == ("doc-123", "yearBuilt")
    assert set(letter) == {"entity_id", "task_name", "retry_count", "timestamp", "receipt_handle"}
    assert sum(ours.counts(url)) == 0


async def test_one_failure_holds_up_no_other_task(sqs: SqsService, kind: Any) -> None:
    url = sqs.create("tasks.fifo")
    handler = kind(sqs.client, url)
    handler.enqueue_tasks("doc-123", FIELDS, {})
    handler.enqueue_tasks("doc-456", FIELDS[:1], {})
    done: list[tuple[str, str, str]] = []
    for _ in range(4):
        told = await process(handler, fail if not done else echo)
        done.append((told["entity_id"], told["task_name"], told["status"]))
    assert sorted(status for *_, status in done) == ["completed", "completed", "completed", "failed"]
    assert len({(entity, task) for entity, task, _ in done}) == 4


def test_without_a_dead_letter_queue_there_are_no_dead_letters(sqs: SqsService, kind: Any) -> None:
    assert kind(sqs.client, sqs.create("tasks.fifo")).get_dlq_messages() == []


@pytest.mark.parametrize("given", [(None, "http://localhost/q.fifo"), ("client", "")])
def test_a_client_and_a_queue_are_required(sqlite_sqs: SqsService, kind: Any, given: tuple[Any, str]) -> None:
    client, url = given
    with pytest.raises(ValueError, match="is required"):
        kind(sqlite_sqs.client if client else None, url)
