"""Who runs scripts: the one thing about jobs that each store does in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.domain.job import Lease
    from penstock.store.jobs.script import Answer, Script, Tx

UNKEEPABLE = "A text holds characters that cannot be stored."
"""What is said of a NUL (on PostgreSQL) or of half a surrogate pair. Names are checked before; ids may be anything."""

Body = Callable[["Tx"], "Script[Answer]"]


class Runner(Protocol):
    """Runs transactions on one store."""

    @property
    def width(self) -> int:
        """How many transactions of one verb are worth running at the same time."""

    async def run(self, verb: str, body: Body[Answer]) -> Answer:
        """Run a script in a transaction, and return its answer after the commit.

        It is run again as often as need be if its commit is unknown. Passes the failpoints `jobs.VERB.begun` and
        `jobs.VERB.committed`. Who listens is told after the commit, even if the caller was cancelled by then. Raises
        `JobInvalid` for texts that the store cannot hold.
        """

    def steps(self) -> Mapping[str, int]:
        """As `JobStore.steps`."""

    def listen(self, ready: Callable[[int, int], None], changed: Callable[[str], None]) -> None:
        """As `JobStore.listen`."""

    def listen_heard(self, heard: Callable[[Lease], None]) -> None:
        """As `JobStore.listen_heard`."""

    def tell_heard(self, lease: Lease) -> None:
        """As `JobStore.tell_heard`."""
