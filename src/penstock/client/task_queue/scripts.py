"""What a task queue asks of SQS besides receiving, as scripts that a blocking and an async client both run.

A script yields calls and pauses, is sent the answers, and is thrown the errors.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.api import BATCH_MAX
from penstock.client.sqs.delivery import HIDDEN_S_MAX
from penstock.client.sqs.message import message_of
from penstock.client.sqs.problems import is_denied, is_lasting, is_unreachable, short, unusable
from penstock.client.task_queue.tasks import SentTask, fields_of, slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.client.sqs.denial import Denial

logger = logging.getLogger("penstock.task_queue")

TRIES_MAX = 4
PAUSE_S = 0.1
LOOK_S = 30
"""For how long a look at more than ten messages hides those that it has seen, until it is over."""
LOOK_MAX = 1_000
RATE_MAX = 500


class Call(NamedTuple):
    """A call of the client."""

    operation: str
    parameters: dict[str, Any]


class Pause(NamedTuple):
    """A wait before the next try."""

    seconds: float


T = TypeVar("T")
Script = Generator[Call | Pause, Any, T]


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task that could not be enqueued, and why."""

    name: str
    code: str
    message: str


class Enqueued(int):
    """How many tasks were enqueued; `failed` has the others."""

    failed: tuple[FailedTask, ...]

    def __new__(cls, count: int, failed: Sequence[FailedTask] = ()) -> Self:
        """Make it of the number and the failures."""
        made = super().__new__(cls, count)
        made.failed = tuple(failed)
        return made


def enqueue(queue_url: str, tasks: Sequence[SentTask]) -> Script[Enqueued]:
    """Send tasks in batches; entries that failed for the moment are sent again.

    Raises what the first call raises, if that sent nothing. Later errors are in `failed`: a repeated call sends nothing
    twice, so it can follow. After one that every call would have, no more calls are made.
    """
    enqueued = 0
    failed: list[FailedTask] = []
    away: Exception | None = None
    for part in slices(tasks, BATCH_MAX):
        if away is not None:
            failed += _failed_by(away, part)
            continue
        left = {str(place): task for place, task in enumerate(part)}
        for tried in range(TRIES_MAX):
            if tried:
                yield Pause(PAUSE_S * 2.0**tried)
            entries = [{"Id": name, **task.entry} for name, task in left.items()]
            try:
                answer = yield Call("send_message_batch", {"QueueUrl": queue_url, "Entries": entries})
            except Exception as error:
                # The client has tried it again, as often as it was configured to.
                if not enqueued:
                    raise
                failed += _failed_by(error, left.values())
                away = error if is_lasting(error) else None
                break
            refused = {entry["Id"]: entry for entry in answer.get("Failed", [])}
            enqueued += len(left) - len(refused)
            again = {name for name, entry in refused.items() if not entry.get("SenderFault")}
            if tried == TRIES_MAX - 1:
                again = set()
            failed += [
                FailedTask(left[name].name, short(entry["Code"]), entry.get("Message", ""))
                for name, entry in refused.items()
                if name not in again
            ]
            left = {name: task for name, task in left.items() if name in again}
            if not left:
                break
    if failed:
        names = ", ".join(task.name for task in failed[:BATCH_MAX])
        logger.error("%d of %d tasks were not enqueued: %s", len(failed), len(tasks), names)
    return Enqueued(enqueued, failed)


def _failed_by(error: Exception, tasks: Iterable[SentTask]) -> list[FailedTask]:
    return [FailedTask(task.name, type(error).__name__, str(error)) for task in tasks]


def status(queue_url: str) -> Script[dict[str, int]]:
    """Count the messages of a queue."""
    answer = yield Call("get_queue_attributes", {"QueueUrl": queue_url, "AttributeNames": ["All"]})
    counted = answer.get("Attributes", {})
    return {
        "messages_available": int(counted.get("ApproximateNumberOfMessages", 0)),
        "messages_in_flight": int(counted.get("ApproximateNumberOfMessagesNotVisible", 0)),
        "messages_delayed": int(counted.get("ApproximateNumberOfMessagesDelayed", 0)),
    }


def look(dlq_url: str, max_messages: int, hold_s: int, denial: Denial) -> Script[list[dict[str, Any]]]:
    """Look at messages without consuming them, and unless `hold_s` says so, without hiding them."""
    if type(max_messages) is not int or not 1 <= max_messages <= LOOK_MAX:
        raise ConsumerInvalid(f"max_messages is a whole number from 1 to {LOOK_MAX:,}, not {max_messages!r}.")
    if type(hold_s) is not int or not 0 <= hold_s <= HIDDEN_S_MAX:
        raise ConsumerInvalid(f"hold is a whole number of seconds from 0 to {HIDDEN_S_MAX:,}, not {hold_s!r}.")
    several = max_messages > BATCH_MAX
    hidden_s = max(hold_s, LOOK_S) if several else hold_s
    seen: dict[str, dict[str, Any]] = {}
    while len(seen) < max_messages:
        parameters = {
            "QueueUrl": dlq_url,
            "MaxNumberOfMessages": min(max_messages - len(seen), BATCH_MAX),
            "MessageAttributeNames": ["All"],
            "AttributeNames": ["All"],
            "VisibilityTimeout": hidden_s,
        }
        received = (yield Call("receive_message", parameters)).get("Messages", [])
        fresh = {message["MessageId"]: message for message in received if message["MessageId"] not in seen}
        seen |= fresh
        if not several or not fresh:
            break
    if several and not hold_s:
        yield from _unhide(dlq_url, list(seen.values()), denial)
    return [_dead_letter(message, dlq_url) for message in seen.values()]


def _unhide(dlq_url: str, messages: list[dict[str, Any]], denial: Denial) -> Script[None]:
    """Make messages visible again, the later ones first, so that a group comes back as a whole."""
    for start in range(len(messages), 0, -BATCH_MAX):
        if denial.known:
            return
        part = reversed(messages[max(start - BATCH_MAX, 0) : start])
        entries = [
            {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
            for place, message in enumerate(part)
        ]
        try:
            answer = yield Call("change_message_visibility_batch", {"QueueUrl": dlq_url, "Entries": entries})
        except Exception as error:
            if not is_denied(error):
                raise
            denial.note(error, dlq_url)
            return
        if refused := answer.get("Failed"):
            logger.warning("%d messages of %s stay hidden for %d s", len(refused), dlq_url, LOOK_S)


def _dead_letter(received: dict[str, Any], dlq_url: str) -> dict[str, Any]:
    message = message_of(received, dlq_url)
    fields = fields_of(message)
    return {
        "entity_id": fields.get("entity_id"),
        "task_name": fields.get("task_name"),
        # This look is a receive too.
        "retry_count": message.receive_count - 1,
        "timestamp": fields.get("timestamp"),
        "receipt_handle": message.receipt,
    }


def redrive(dlq_url: str, rate: int | None) -> Script[str]:
    """Have SQS move all dead letters back to where they came from; return the handle of the move task."""
    if rate is not None and (type(rate) is not int or not 1 <= rate <= RATE_MAX):
        raise ConsumerInvalid(f"rate is a whole number of messages a second from 1 to {RATE_MAX}, not {rate!r}.")
    asked = {"QueueUrl": dlq_url, "AttributeNames": ["QueueArn"]}
    arn = (yield Call("get_queue_attributes", asked))["Attributes"]["QueueArn"]
    parameters: dict[str, Any] = {"SourceArn": arn}
    if rate is not None:
        parameters["MaxNumberOfMessagesPerSecond"] = rate
    handle: str = (yield Call("start_message_move_task", parameters))["TaskHandle"]
    return handle


def explain(error: Exception, queue_url: str) -> None:
    """Add what is wrong with the queue to an error of the client, which stays what it is."""
    if getattr(error, "response", None) is not None or is_unreachable(error):
        error.add_note(str(unusable(error, queue_url)))
