"""A worker of a backend, as `manage.py penstock_worker` starts it, and starts it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from penstock.cli.failures import USAGE, Failure
from penstock.cli.worker.settings import SLOTS_DEFAULT, WorkerSettings
from penstock.django.backend import PenstockBackend
from penstock.django.framework import task_backends

if TYPE_CHECKING:
    from penstock.client.app import Penstock

COMMAND = "penstock_worker"


class DjangoWorkerSettings(WorkerSettings, frozen=True, kw_only=True):
    """One worker, or several processes of it."""

    backend: str
    settings_module: str | None = None
    """What `--settings` named."""
    python_path: str | None = None
    """What `--pythonpath` named."""

    def find_app(self) -> Penstock:
        """Return the app of the backend with the tasks of the project; raises `Failure`."""
        try:
            return find_backend(self.backend).working_app(self.imports)
        except ImportError as error:
            raise Failure(f"Cannot import the tasks: {error}.") from error

    def arguments(self) -> list[str]:
        """Return these settings as they are written on the command line."""
        _, _, *given = super().arguments()
        place = given.index("--color")
        color = {"always": ["--force-color"], "never": ["--no-color"]}.get(given[place + 1], [])
        kept = [one for one in [*given[:place], *given[place + 2 :]] if one != "--verbose"]
        made = [COMMAND, "--backend", self.backend, *kept, "--verbosity", str(self.verbose + 1), *color]
        made += [] if self.settings_module is None else ["--settings", self.settings_module]
        made += [] if self.python_path is None else ["--pythonpath", self.python_path]
        return [*made, "--skip-checks"]  # The process that starts this one has made them.


def find_backend(alias: str) -> PenstockBackend:
    """Return the backend of an alias; raises `Failure` unless it is one of ours and its settings are right."""
    try:
        backend: Any = task_backends[alias]
        if isinstance(backend, PenstockBackend):
            backend.settings  # noqa: B018 - it raises if they are wrong
            return backend
    except ImproperlyConfigured as error:
        raise Failure(str(error), exit_code=USAGE) from None
    raise Failure(
        f"TASKS[{alias!r}] is a {type(backend).__name__}, which needs no worker of Penstock.",
        hint='"BACKEND": "penstock.django.PenstockBackend"',
        exit_code=USAGE,
    )


def queues_of(backend: PenstockBackend, asked: dict[str, int] | None) -> dict[str, int] | None:
    """Return the queues to work for: those asked for, else all of QUEUES; raises `Failure` for one that is not there.

    None is all queues of the tasks, where QUEUES is empty.
    """
    if asked is None:
        return dict.fromkeys(sorted(backend.queues), SLOTS_DEFAULT) or None
    for queue in asked:
        if backend.queues and queue not in backend.queues:
            raise Failure(
                f"QUEUES of TASKS[{backend.alias!r}] has no queue {queue}.",
                why=[f"it has {', '.join(sorted(backend.queues))}"],
                exit_code=USAGE,
            )
    return asked
