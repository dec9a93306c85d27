"""The scenarios, each in a file of its own, in the order of the documentation.

`duplicates.py` has the class `Duplicates`, and `dlq_redrive.py` has `DlqRedrive`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.lab.run import PICTURES

if TYPE_CHECKING:
    from penstock.lab.scenario import Scenario


def _module(name: str) -> str:
    return name.replace("-", "_")


NAMES = tuple(name for name in PICTURES if (Path(__file__).parent / f"{_module(name)}.py").is_file())


def scenario(name: str) -> Scenario:
    """Return a scenario by its name; raises `KeyError`."""
    if name not in NAMES:
        raise KeyError(name)
    module = import_module(f"{__name__}.{_module(name)}")
    found: Scenario = getattr(module, name.title().replace("-", ""))()
    assert found.name == name
    return found
