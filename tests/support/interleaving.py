"""Answers that are lost after the commit, and what is done before the caller tries again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest

from penstock.domain.errors import StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.queue import Queue
from penstock.store.port import Store
from penstock.testing import ManualClock

Interleaving = Callable[[Store, Queue, ManualClock], AbstractAsyncContextManager[None]]
"""Does something between the attempts; at its end, after the retry, it checks that the retry changed nothing of it."""


def with_each(interleavings: list[Interleaving]) -> pytest.MarkDecorator:
    """Run a test that asks for `interleaving` with each of these."""
    # A function that makes context managers has the name of the one that it was made from.
    names = [getattr(interleaving, "__name__", "") for interleaving in interleavings]
    return pytest.mark.parametrize("interleaving", interleavings, ids=names)


@dataclass(frozen=True)
class Scene:
    """A store whose answers can be lost, and its time."""

    store: Store
    failpoints: Failpoints
    clock: ManualClock


def lose_the_answer(failpoints: Failpoints, place: str, error: type[Exception] = StoreUnavailable) -> None:
    """Let the next verb that passes `place` raise there."""

    def fail() -> None:
        raise error("the answer was lost")

    failpoints.arm(place, fail)
