"""What tests need, ours and users': a clock that is moved by hand, a server in the test's own process, tested apps."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.tasks.testing import AsyncTaskTester, TaskTester
    from penstock.domain.clock import ManualClock
    from penstock.domain.ids import CountedIds
    from penstock.testing.running import RunningServer, ServerClock, serve

__all__ = [
    "AsyncTaskTester",
    "CountedIds",
    "ManualClock",
    "RunningServer",
    "ServerClock",
    "TaskTester",
    "serve",
]

_HOMES = {
    "AsyncTaskTester": "penstock.client.tasks.testing",
    "CountedIds": "penstock.domain.ids",
    "ManualClock": "penstock.domain.clock",
    "RunningServer": "penstock.testing.running",
    "ServerClock": "penstock.testing.running",
    "TaskTester": "penstock.client.tasks.testing",
    "serve": "penstock.testing.running",
}


def __getattr__(name: str) -> object:
    # When first asked for: pytest loads the plugin, and so this package, in every run of everybody who has Penstock.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
