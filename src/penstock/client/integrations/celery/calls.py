"""How the options of a Celery call become fields of a job, and which of them cannot."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery.utils.time import maybe_make_aware

from penstock.client.integrations.celery.adopting import AdoptedTask
from penstock.client.integrations.celery.codec import ABOUT
from penstock.client.integrations.celery.declaring import SERIALIZERS, priority_of
from penstock.client.integrations.celery.errors import CeleryUnsupported
from penstock.client.reading import new_id
from penstock.client.tasks.batch import BatchTask
from penstock.client.tasks.options import fields_of
from penstock.client.tasks.task import Call, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMESPACE = uuid.UUID("7f0c1f3e-6a57-5d0e-9a3b-2c6f4f0e9d11")
CANVAS = frozenset({"link", "link_error", "chain", "chord", "group_id", "group_index", "stamped_headers"})
"""What makes a call a part of something larger, which Celery's workers and its result backend keep together."""
MAPPED = frozenset(
    {"countdown", "eta", "expires", "queue", "priority", "task_id", "time_limit", "soft_time_limit", "headers"}
)
WITHOUT_EFFECT = frozenset(
    {
        "add_to_parent",  # Children of a result are Celery's.
        "compression",
        "connection",
        "delivery_mode",  # Jobs are always durable.
        "ignore_result",  # Results are always stored.
        "parent_id",
        "producer",
        "publisher",
        "replaced_task_nesting",
        "result_cls",
        "retries",
        "retry",  # A call is repeated until the timeout of the app.
        "retry_policy",
        "root_id",
        "serializer",  # Checked, but JSON in any case.
        "shadow",  # A name in Celery's logs.
        "task_type",
    }
)
"""What says how a message travels, or how Celery shows it: it changes nothing about what runs, and when."""
LEEWAY_S = 0.001


def canvas_in(options: Mapping[str, Any]) -> list[str]:
    """Return the names of options that make a call a part of a canvas."""
    return sorted(name for name in CANVAS if options.get(name))


def call_of(
    celery_app: Any,  # noqa: ANN401 - Celery has no types
    task: Task[..., Any, Any] | BatchTask[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Mapping[str, Any],
) -> tuple[str, Call[Any]]:
    """Return the id that Celery knows a call by, and the call; raises `CeleryUnsupported` or `ArgumentsInvalid`."""
    plain = task.task if isinstance(task, BatchTask) else task
    _check(plain.name, options)
    wanted = _options(celery_app, plain, options)
    task_id = options.get("task_id")
    job_id = new_id() if task_id is None else job_id_of(task_id)
    about: dict[str, Any] = dict(options.get(ABOUT) or {})
    if options.get("headers"):
        about["headers"] = dict(options["headers"])
    if task_id is not None and task_id != job_id:
        about["id"] = task_id
    fields = plain.fields | fields_of({**wanted, "id": job_id})
    return task_id or job_id, Call(plain, _payload(plain, args, kwargs, about), fields)


def job_id_of(task_id: object) -> str:
    """Return the id of the job for a Celery task id: the same if it is a UUID, otherwise one made of it."""
    if not isinstance(task_id, str) or not task_id:
        raise CeleryUnsupported(f"task_id is a text, not {task_id!r}.")
    return task_id if is_uuid(task_id) else str(uuid.uuid5(_NAMESPACE, task_id))


def is_uuid(text: object) -> bool:
    """Return whether a text is a UUID in its usual form, as Celery makes them."""
    try:
        return isinstance(text, str) and str(uuid.UUID(text)) == text
    except ValueError:
        return False


def instant_of(celery_app: Any, given: Any) -> datetime:  # noqa: ANN401 - as above
    """Return an instant with a time zone: Celery takes datetimes and ISO 8601, without one in the app's own."""
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise CeleryUnsupported(f"{given!r} is not a date and time of ISO 8601.") from None
    if not isinstance(given, datetime):
        raise CeleryUnsupported(f"An instant is a datetime, not {given!r}.")
    aware: datetime = maybe_make_aware(given, celery_app.timezone)
    return aware


def _check(name: str, options: Mapping[str, Any]) -> None:
    if canvas := canvas_in(options):
        raise CeleryUnsupported(
            f"Task {name} is moved, and this call of it has {', '.join(canvas)}. Use call(…).then(…) for what follows "
            "it, and app.fan_out(…, then=…) for a group or a chord. Or leave calls in a canvas to Celery: "
            'move(…, canvas="celery").'
        )
    known = CANVAS | MAPPED | WITHOUT_EFFECT | {ABOUT}
    if unknown := sorted(option for option, value in options.items() if value is not None and option not in known):
        raise CeleryUnsupported(
            f"Task {name} is moved, and this call of it has {', '.join(unknown)}, which has no counterpart. "
            f"Supported are {', '.join(sorted(MAPPED))}."
        )
    if options.get("serializer") not in SERIALIZERS:
        raise CeleryUnsupported(
            f"Task {name} is moved, and this call of it asks for the serializer {options['serializer']!r}. "
            "Arguments have to be JSON."
        )


def _options(celery_app: Any, task: Task[..., Any, Any], options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return options of ours."""
    wanted: dict[str, Any] = {}
    queue = options.get("queue")
    if queue is not None:
        wanted["queue"] = str(getattr(queue, "name", queue))
    if options.get("priority") is not None:
        wanted["priority"] = priority_of(celery_app, options["priority"])
    if options.get("countdown"):
        wanted["delay"] = max(_number("countdown", options["countdown"]), 0.0)
    elif options.get("eta"):
        wanted["run_at"] = instant_of(celery_app, options["eta"])
    if options.get("expires") is not None:
        wanted["expires"] = max(_seconds_left(celery_app, options["expires"]), LEEWAY_S)
    own = task.celery_task if isinstance(task, AdoptedTask) else None
    limit, soft = options.get("time_limit"), options.get("soft_time_limit")
    if own is not None and (limit, soft) == (own.time_limit, own.soft_time_limit):
        return wanted  # Celery hands over what the task was declared with, which is among the task's fields.
    if soft:
        raise CeleryUnsupported(
            f"Task {task.name} is moved, and this call of it has a soft_time_limit. Only the task can have one."
        )
    if limit:
        wanted["timeout"] = _number("time_limit", limit)
    return wanted


def _seconds_left(celery_app: Any, expires: Any) -> float:  # noqa: ANN401 - as above
    if isinstance(expires, int | float):
        return _number("expires", expires)
    left_s: float = (instant_of(celery_app, expires) - celery_app.now()).total_seconds()
    return left_s


def _number(name: str, given: Any) -> float:  # noqa: ANN401 - as above
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise CeleryUnsupported(f"{name} is a number of seconds, not {given!r}.")
    return float(given)


def _payload(task: Task[..., Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any], about: dict[str, Any]) -> bytes:
    if not about:
        return task.signature.encode(args, kwargs)
    if not isinstance(task, AdoptedTask):
        if about.keys() == {"id"} or about == {"retries": 0}:
            return task.signature.encode(args, kwargs)
        raise CeleryUnsupported(
            f"Task {task.name} is no Celery task any more, so it cannot see {', '.join(sorted(about))} of this call."
        )
    return task.signature.encode(args, kwargs | {ABOUT: about})
