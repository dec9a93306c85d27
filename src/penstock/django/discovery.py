"""Finds tasks by their names: those that were declared, and those that can be imported."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import autodiscover_modules, import_string

from penstock.django.framework import Task

if TYPE_CHECKING:
    from collections.abc import Iterable

_declared: dict[str, Any] = {}
"""Tasks that our backends have seen, by the paths of their functions."""


def remember(task: Any) -> None:  # noqa: ANN401 - the framework's tasks have no types
    """Note that there is such a task. Of several of one function the first is the one that was declared."""
    known = _declared.get(task.module_path)
    if known is None or known.func is not task.func:
        _declared[task.module_path] = task


def find_task(path: str) -> Any:  # noqa: ANN401 - as above
    """Return the task whose function has this path; raises `ImportError`."""
    if path not in _declared:
        try:
            found = import_string(path)
        except ImportError as error:
            raise ImportError(f"Task {path} cannot be imported here: {error}") from error
        if not isinstance(found, Task):
            raise ImportError(f"{path} is not a task here. Has it lost its @task?")
        _declared.setdefault(path, found)
    return _declared[path]


def discover(modules: Iterable[str] = ()) -> dict[str, Any]:
    """Import `tasks` of all installed apps, and these modules, and return all tasks by the paths of their functions."""
    autodiscover_modules("tasks")
    for module in modules:
        import_module(module)
    # Tasks that were declared for another backend can be sent to ours with `using(backend=…)`.
    for module_loaded in list(sys.modules.values()):
        for value in list(getattr(module_loaded, "__dict__", {}).values()):
            if issubclass(type(value), Task):  # Not `isinstance`, which opens the lazy objects of Django.
                remember(value)
    return dict(_declared)
