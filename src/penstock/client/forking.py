"""Descriptors that a forked child must not keep: it would hold a lock or a connection after its owner is gone."""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable


class Holder(Protocol):
    """Has descriptors that belong to this process alone."""

    def descriptors(self) -> Iterable[int]:
        """Return those that are open now."""

    def forget(self) -> None:
        """Be as new, in a forked child. The descriptors are closed already."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()
_held: set[int] = set()


def register(holder: Holder) -> None:
    """Have a holder's descriptors closed in every child that is forked from now on."""
    _holders.add(holder)


@contextlib.contextmanager
def held(descriptor: int) -> Generator[int]:
    """Have a descriptor closed at the end of the block, and in every child that is forked meanwhile."""
    _held.add(descriptor)
    try:
        yield descriptor
    finally:
        # A child has closed it; what has the number now is not ours.
        if descriptor in _held:
            _held.discard(descriptor)
            os.close(descriptor)


def _close_in_child() -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for holder in list(_holders):
        for descriptor in holder.descriptors():
            # The number stays taken: objects that were made for it may still close it. One may have been closed just
            # before the fork, by another thread.
            if descriptor >= 0:
                os.dup2(null, descriptor, inheritable=False)
        holder.forget()
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()
    os.close(null)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
