"""The ledger as its reader sees it: which jobs ran, how often, and when."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.library.programs.tasks import RECORD
from benchmarks.scratch import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 # A folder of our own is made there.


class Effect(msgspec.Struct, frozen=True):
    """One record."""

    number: int
    sent_ns: int
    at_ns: int


class Ledger:
    """A file that workers append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def __len__(self) -> int:
        return self.path.stat().st_size // RECORD.size

    def since(self, start: int) -> list[Effect]:
        """Return the records from this one on."""
        with self.path.open("rb") as file:
            file.seek(start * RECORD.size)
            written = file.read()
        whole = len(written) - len(written) % RECORD.size
        return [Effect(*fields) for fields in RECORD.iter_unpack(written[:whole])]

    def judge(self, numbers: Iterable[int]) -> tuple[int, int]:
        """Return how many of these jobs never ran, and how many ran more than once."""
        times = Counter(effect.number for effect in self.since(0))
        runs = [times[number] for number in numbers]
        return sum(1 for each in runs if each == 0), sum(1 for each in runs if each > 1)


@contextlib.contextmanager
def ledger_folder() -> Iterator[Path]:
    """Make a folder in memory where there is one, so that ledgers do not compete with the stores for the disk."""
    if not os.access(_SHARED_MEMORY, os.W_OK):
        with temporary_folder() as folder:
            yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=_SHARED_MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
