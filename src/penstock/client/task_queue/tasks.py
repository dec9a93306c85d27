"""Tasks of one entity as entries of SendMessageBatch, checked before the first is sent."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.client.errors import BodyInvalid, ConsumerInvalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client.sqs.message import Message

GROUP_CHARACTERS_MAX = 128
MESSAGE_BYTES_MAX = 1_048_576
"""Of a message, and of all messages of a batch."""
_DIGEST_CHARACTERS = 16
_FORBIDDEN = re.compile(r"""[^A-Za-z0-9!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]""")
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SentTask:
    """One task, ready to be sent."""

    __slots__ = ("entry", "name", "size_bytes")

    def __init__(self, name: str, entry: dict[str, Any]) -> None:
        self.name = name
        self.entry = entry
        """Of SendMessageBatch, without its `Id`."""
        attributes = sum(
            len(key) + len(value["DataType"]) + len(value["StringValue"].encode())
            for key, value in entry["MessageAttributes"].items()
        )
        self.size_bytes = len(entry["MessageBody"].encode()) + attributes


def tasks_to_send(
    entity_id: str | int,
    tasks: Iterable[Mapping[str, Any]],
    metadata: Mapping[str, Any] | None,
    *,
    run: object = None,
    wall_ms: int,
) -> list[SentTask]:
    """Return all tasks as messages; raises `ConsumerInvalid` if any of them cannot be sent."""
    entity = _entity(entity_id)
    if isinstance(tasks, str | bytes | Mapping) or not isinstance(tasks, Iterable):
        raise ConsumerInvalid(f"tasks is a list of dicts, each with a name, not {type(tasks).__name__}.")
    listed = list(tasks)
    timestamp = datetime.fromtimestamp(wall_ms / 1_000, UTC).isoformat()
    sent: dict[str, SentTask] = {}
    for place, task in enumerate(listed):
        name = _name(task, place)
        if name in sent:
            raise ConsumerInvalid(f"Two tasks are called {name!r}. A task has one name of its own for each entity.")
        body = {
            "entity_id": entity_id,
            "task_name": name,
            "task_config": task.get("config", {}),
            "metadata": {} if metadata is None else metadata,
            "timestamp": timestamp,
            "retry_count": 0,
            "total_tasks": len(listed),
        }
        try:
            written = json.dumps(body, allow_nan=False)
            identity = json.dumps([entity_id, name, body["task_config"], body["metadata"], run], sort_keys=True)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConsumerInvalid(f"Task {name!r} cannot be written as JSON: {error}") from error
        sent[name] = SentTask(
            name,
            {
                "MessageBody": written,
                "MessageGroupId": group_of(entity, name),
                "MessageDeduplicationId": hashlib.sha256(identity.encode()).hexdigest(),
                "MessageAttributes": {
                    "entity_id": {"StringValue": entity, "DataType": "String"},
                    "task_name": {"StringValue": name, "DataType": "String"},
                },
            },
        )
        if sent[name].size_bytes > MESSAGE_BYTES_MAX:
            raise ConsumerInvalid(
                f"Task {name!r} has {sent[name].size_bytes:,} bytes, and SQS takes {MESSAGE_BYTES_MAX:,} at most."
            )
    return list(sent.values())


def group_of(entity: str, task: str) -> str:
    """Return the message group of a task, `{entity}-{task}`, with a digest where that would not be its own.

    Without it ("a-b", "c") and ("a", "b-c") would share a group; so would names that SQS does not allow in a group and
    that are alike in what it allows.
    """
    plain = f"{entity}-{task}"
    if "-" not in task and len(plain) <= GROUP_CHARACTERS_MAX and not _FORBIDDEN.search(plain):
        return plain
    digest = hashlib.sha256(json.dumps([entity, task]).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    kept = _FORBIDDEN.sub("_", plain)[: GROUP_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]
    return f"{kept}.{digest}"


def slices(tasks: Sequence[SentTask], count_max: int) -> list[list[SentTask]]:
    """Split tasks so that each part fits into one call, by count and by bytes."""
    parts: list[list[SentTask]] = []
    size_bytes = 0
    for task in tasks:
        size_bytes += task.size_bytes
        if not parts or len(parts[-1]) == count_max or size_bytes > MESSAGE_BYTES_MAX:
            parts.append([])
            size_bytes = task.size_bytes
        parts[-1].append(task)
    return parts


class ReceivedTask:
    """A task as it was received."""

    __slots__ = ("config", "entity_id", "metadata", "name")

    def __init__(self, *, entity_id: object, name: str, config: object, metadata: object) -> None:
        self.entity_id = entity_id
        self.name = name
        self.config = config
        self.metadata = metadata


def task_of(message: Message) -> ReceivedTask:
    """Read a task out of a message; raises `BodyInvalid`."""
    body = message.json()
    if not isinstance(body, dict):
        raise BodyInvalid(f"The body of message {message.id} is JSON, but no object.")
    missing = [field for field in ("entity_id", "task_name") if field not in body]
    if missing:
        raise BodyInvalid(f"The body of message {message.id} has no {' and no '.join(missing)}.")
    return ReceivedTask(
        entity_id=body["entity_id"],
        name=body["task_name"],
        config=body.get("task_config", {}),
        metadata=body.get("metadata", {}),
    )


def fields_of(message: Message) -> dict[str, Any]:
    """Return the fields of a body as far as it can be read."""
    try:
        body = json.loads(message.body)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _entity(entity_id: str | int) -> str:
    if type(entity_id) not in {str, int} or entity_id == "":
        raise ConsumerInvalid(f"entity_id is a text or a whole number, and not empty: not {entity_id!r}.")
    return _text(str(entity_id), "entity_id")


def _name(task: object, place: int) -> str:
    name = task.get("name") if isinstance(task, Mapping) else None
    if type(name) is not str or not name:
        raise ConsumerInvalid(f'Task number {place + 1} has no name: a task is a dict such as {{"name": "yearBuilt"}}.')
    return _text(name, f"The name of task number {place + 1}")


def _text(text: str, what: str) -> str:
    if found := _NOT_IN_XML.search(text):
        raise ConsumerInvalid(f"{what} has the character {found[0]!r}, which SQS does not take: {text!r}.")
    return text
