"""Options of a task and of a single call, and how they become fields of a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.client.durations import Duration, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from penstock.client.tasks.retries import Retry


LENGTH_MAX = 200
TAGS_MAX = 20
PRIORITY_MAX = 9
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class TaskOptions(TypedDict, total=False):
    """What a task and a call of it can have.

    | option | what it says |
    |---|---|
    | `queue` | the queue that its jobs wait in |
    | `timeout` | how long one attempt may run |
    | `retry` | a `Retry`; the queue's policy applies if there is none |
    | `priority` | 0 to 9, the higher the sooner; 4 if it is left out |
    | `tenant` | whose job it is: tenants take turns |
    | `concurrency` | `("api", 3)`: of all jobs with the key "api" three run at once |
    | `rate` | `("stripe", 10)`: of all jobs with the key "stripe" ten start in a second |
    | `expires` | a job that has not begun by then is cancelled |
    | `retention` | how long the job and its result are kept after it ended |
    | `tags` | up to 20, to find it by |
    """

    queue: str
    timeout: Duration
    retry: Retry
    priority: int
    tenant: str
    concurrency: tuple[str, int]
    rate: tuple[str, float]
    expires: Duration
    retention: Duration
    tags: Sequence[str]


class CallOptions(TaskOptions, total=False):
    """What a call can have besides.

    | option | what it says |
    |---|---|
    | `delay`, `run_at` | not before: from now, or an instant with a time zone |
    | `group` | jobs of one group run one at a time and in order |
    | `key` | an idempotency key: the same key again is the same job |
    | `unique` | at most one unfinished job has this key; the later one gives way |
    | `replace` | ... or, if the earlier one still waits, takes its place |
    | `id` | the job's id, a UUID |
    | `tx` | a connection of yours: the job is enqueued if and when its transaction commits |
    """

    delay: Duration
    run_at: datetime
    group: str
    key: str
    unique: str
    replace: bool
    id: str
    tx: object


def _text(name: str, given: Any, *, empty: bool = False) -> str:  # noqa: ANN401 - what is wrong is said
    if not isinstance(given, str):
        raise TypeError(f"{name} is a text, not {given!r}.")
    if len(given) > LENGTH_MAX or not (given or empty):
        raise ValueError(f"{name} has {'up' if empty else '1'} to {LENGTH_MAX} characters, not {len(given)}.")
    return given


def check_queue(given: str, name: str = "queue") -> str:
    """Return the name of a queue; raises `TypeError` or `ValueError` unless a queue can have it."""
    if _QUEUE.fullmatch(_text(name, given)) is None:
        raise ValueError(f"{name} has letters and digits only, and . _ : - after the first character, not {given!r}.")
    return given


def _retry(given: Retry) -> dict[str, Any]:
    try:
        return {"retry": given.settings}
    except AttributeError:
        raise TypeError(f"retry is a Retry, not {given!r}. Write Retry(attempts=3), for example.") from None


def _priority(given: int) -> dict[str, Any]:
    if type(given) is not int:
        raise TypeError(f"priority is a whole number, not {given!r}.")
    if not 0 <= given <= PRIORITY_MAX:
        raise ValueError(f"priority is from 0 to {PRIORITY_MAX}, the higher the sooner, not {given}.")
    return {"priority": given}


def _pair(name: str, given: Any, kinds: set[type]) -> tuple[str, Any]:  # noqa: ANN401 - what is wrong is said
    match given:
        case (str(key), int() | float() as value) if type(value) in kinds:
            if not value > 0:
                raise ValueError(f"The number of {name} is more than 0, not {value!r}.")
            return _text(f"The key of {name}", key), value
    raise TypeError(f'{name} is a key and a number, such as ("api", 3), not {given!r}.')


def _concurrency(given: tuple[str, int]) -> dict[str, Any]:
    key, width = _pair("concurrency", given, {int})
    return {"concurrency": {"key": key, "width": width}}


def _rate(given: tuple[str, float]) -> dict[str, Any]:
    key, per_second = _pair("rate", given, {int, float})
    return {"start_rate": {"key": key, "per_second": per_second}}


def _run_at(given: datetime) -> dict[str, Any]:
    if getattr(given, "tzinfo", None) is None:
        raise ValueError(f"run_at is a datetime with a time zone, not {given!r}.")
    return {"run_at_ms": round(given.timestamp() * 1_000)}


def _more_than_nothing(name: str, given: Duration) -> int:
    length_ms = milliseconds(given, name)
    if not length_ms:
        raise ValueError(f"{name} is more than 0.")
    return length_ms


def _tags(given: Sequence[str]) -> dict[str, Any]:
    if isinstance(given, str):
        raise TypeError(f"tags is a list of texts, such as [{given!r}].")
    if not isinstance(given, list | tuple | set | frozenset):
        raise TypeError(f"tags is a list of texts, not {given!r}.")
    if len(given) > TAGS_MAX:
        raise ValueError(f"A job has up to {TAGS_MAX} tags, not {len(given)}.")
    return {"tags": [_text("A tag", tag) for tag in given]}


def _id(given: object) -> dict[str, Any]:
    if not isinstance(given, str) or _UUID.fullmatch(given) is None:
        raise ValueError(f"id is a UUID in lower case, as a text, not {given!r}.")
    return {"id": given}


_FIELDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "queue": lambda given: {"queue": check_queue(given)},
    "timeout": lambda given: {"timeout_ms": _more_than_nothing("timeout", given)},
    "retry": _retry,
    "priority": _priority,
    "tenant": lambda given: {"tenant": _text("tenant", given, empty=True)},
    "concurrency": _concurrency,
    "rate": _rate,
    "expires": lambda given: {"expires_in_ms": _more_than_nothing("expires", given)},
    "retention": lambda given: {"retention_ms": milliseconds(given, "retention")},
    "tags": _tags,
    "delay": lambda given: {"delay_ms": milliseconds(given, "delay")},
    "run_at": _run_at,
    "group": lambda given: {"group": _text("group", given)},
    "key": lambda given: {"idempotency_key": _text("key", given)},
    "unique": lambda given: {"unique_key": _text("unique", given)},
    "replace": lambda given: {"on_duplicate": "replace" if given else "keep"},
    "id": _id,
    "tx": lambda _: {},  # It says how the job is enqueued, and is no field of it.
}


def fields_of(options: Mapping[str, Any], allowed: type = CallOptions) -> dict[str, Any]:
    """Return the fields of a job that these options mean; raises `TypeError` or `ValueError` if one is wrong."""
    names = allowed.__annotations__
    fields: dict[str, Any] = {}
    for name, given in options.items():
        if name not in names or name not in _FIELDS:
            raise TypeError(f"There is no option {name!r}. The options are {', '.join(sorted(names))}.")
        fields.update(_FIELDS[name](given))
    if "delay_ms" in fields and "run_at_ms" in fields:
        raise ValueError("A call has either delay or run_at, not both.")
    if fields.get("on_duplicate") == "replace" and "unique_key" not in fields:
        raise ValueError("replace needs unique: only a job with a unique key can replace another.")
    return fields
