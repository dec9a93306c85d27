"""What a worker is asked to do, checked before it begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.client.errors import WorkerInvalid
from penstock.client.tasks.options import LENGTH_MAX, check_queue

if TYPE_CHECKING:
    from penstock.client.app import Penstock

SLOTS_MAX = 500


def checked_queues(queues: object) -> dict[str, int]:
    """Return how many jobs of each queue run at once; raises `WorkerInvalid`."""
    if not isinstance(queues, Mapping) or not queues:
        raise WorkerInvalid(
            f'queues says how many jobs of each queue run at once, such as {{"mail": 2}}, not {queues!r}. '
            "Leave it out for all queues of the app's tasks."
        )
    for queue, slots in queues.items():
        try:
            check_queue(queue, "The name of a queue")
        except (TypeError, ValueError) as error:
            raise WorkerInvalid(str(error)) from None
        if type(slots) is not int or not 1 <= slots <= SLOTS_MAX:
            raise WorkerInvalid(
                f"The slots of queue {queue!r} are a whole number from 1 to {SLOTS_MAX}, not {slots!r}."
            )
    return dict(queues)


def check_limits(app: Penstock, name: object, *, max_jobs: object, max_rss: object) -> None:
    """Raise `WorkerInvalid` unless there is an app, and names and limits make sense."""
    if not hasattr(app, "import_tasks"):
        raise WorkerInvalid(f"A worker runs the tasks of a Penstock, not of {app!r}.")
    if name is not None and (not isinstance(name, str) or len(name) > LENGTH_MAX):
        raise WorkerInvalid(f"The name of a worker is a text of up to {LENGTH_MAX} characters, not {name!r}.")
    for limit, given in {"max_jobs": max_jobs, "max_rss": max_rss}.items():
        if given is not None and (type(given) is not int or given < 1):
            raise WorkerInvalid(f"{limit} is a whole number from 1 on, not {given!r}.")
