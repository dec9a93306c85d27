"""Where benchmarks work: temporary files, queues of their own, and the check that nobody else's are there."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import StoreNotOurs
from penstock.domain.queue import FIFO_SUFFIX, QueueAttributes, QueueName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.domain.queue import Queue
    from penstock.store.port import Store

PREFIX = "bench-"
ACCOUNT = "000000000000"
REGION = "us-east-1"
SWEEP_SECONDS_MAX = 60.0

# The port lists the queues of one region at a time, so a benchmark looks wherever a queue is likely to be.
_REGIONS = [
    f"{area}-{place}-{number}"
    for area, places in {
        "us": ("east", "west"),
        "eu": ("central", "west", "north", "south"),
        "ap": ("northeast", "southeast", "south", "east"),
        "ca": ("central", "west"),
        "sa": ("east",),
        "af": ("south",),
        "me": ("central", "south"),
        "il": ("central",),
        "mx": ("central",),
        "cn": ("north", "northwest"),
    }.items()
    for place in places
    for number in (1, 2, 3)
] + ["elasticmq", "local", "localhost"]


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that is removed with all that is in it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def folder_of(url: str) -> Path | None:
    """Return the folder that holds a SQLite store, so that something else can be put on the same disk."""
    scheme, _, path = url.partition(":")
    folder = Path(path).expanduser().parent
    return folder if scheme == "sqlite" and path and folder.is_dir() else None


def without_password(url: str) -> str:
    """Return an address as it may be shown."""
    parts = urllib.parse.urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@", 1)).geturl()


async def refuse_foreign_queues(store: Store) -> None:
    """Raise `StoreNotOurs` if the store holds a queue whose name does not say that a benchmark made it."""
    for region in _REGIONS:
        before = await store.list_queues(region, ACCOUNT, limit=1)
        # In the order of names, ours are next to each other: what is not ours comes before all of them, or after.
        after = await store.list_queues(region, ACCOUNT, after=PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1), limit=1)
        for queue in before + after:
            if not queue.name.name.startswith(PREFIX):
                raise StoreNotOurs(
                    f"the store holds the queue {queue.name.name} ({region}), which no benchmark made. "
                    "Name a store that holds no queues, or leave --store out for a temporary one."
                )


class ScratchQueues:
    """Queues with names that nobody else has, deleted in the end."""

    def __init__(self) -> None:
        self._token = os.urandom(4).hex()
        self._made: list[Queue] = []

    async def make(self, store: Store, purpose: str, *, fifo: bool = False) -> Queue:
        """Make a queue for one purpose of this run."""
        name = f"{PREFIX}{self._token}-{purpose}{FIFO_SUFFIX if fifo else ''}"
        queue, created = await store.create_queue(QueueName(REGION, ACCOUNT, name), QueueAttributes(), {})
        assert created, "the name is random"
        self._made.append(queue)
        return queue

    async def delete(self, store: Store, *, sweep: bool) -> bool:
        """Delete what was made. With `sweep`, also remove the messages; False says that the time for it ran out."""
        while self._made:
            await store.delete_queue(self._made[-1])
            self._made.pop()
        ends_s = time.monotonic() + SWEEP_SECONDS_MAX
        while sweep and await store.sweep():
            if time.monotonic() > ends_s:
                return False
        return True
