"""What is decided about connections and requests before any body is read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.domain.errors import ServerOverloaded
from penstock.server.answer_bytes import refusal
from penstock.server.browser_guard import BrowserGuard
from penstock.server.request_memory import RequestMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.domain.errors import PenstockError
    from penstock.server.unix_sockets import Peers
    from penstock.wire.http import Request, Response

    Authenticate = Callable[[Request], bool]
    """Returns whether the head of a request says who makes it; raises if no body could make up for what it says."""

    Refuse = Callable[[Request, PenstockError], Response]
    """Makes the answer to a request that is refused by its head."""

_log = logging.getLogger(__name__)

CONNECTIONS_MAX = 10_000
LINGERING_MAX = 256
"""How many clients too many are given the time to read that they are."""
RETRY_AFTER = ("retry-after", "1")
TOO_MUCH = ServerOverloaded("The server holds as much of unfinished requests as it may. Please try again.")


def refuse_plainly(_head: Request, error: PenstockError) -> Response:
    """Refuse a request in plain text."""
    overloaded = isinstance(error, ServerOverloaded)
    answer = refusal(503 if overloaded else 403, error.reason)
    return with_retry(answer) if overloaded else answer


def with_retry(answer: Response) -> Response:
    """Add to an answer when to try again."""
    answer.headers = [*answer.headers, RETRY_AFTER]
    return answer


class Admission:
    """The rules for all connections of a process. Without `authenticate`, nobody has to say who they are."""

    def __init__(
        self,
        *,
        guard: BrowserGuard | None = None,
        memory: RequestMemory | None = None,
        connections_max: int = CONNECTIONS_MAX,
        authenticate: Authenticate | None = None,
        refuse: Refuse = refuse_plainly,
        peers: Peers | None = None,
    ) -> None:
        self.guard = guard or BrowserGuard()
        self.memory = memory or RequestMemory()
        self.connections_max = connections_max
        self.authenticate = authenticate
        self.refuse = refuse
        self.peers = peers
        """Who may connect, where that is a Unix socket."""
        self.lingering = 0
        """How many connections were refused and are still open."""
        self._refused = 0

    def note_refused_connection(self) -> None:
        """Log that a connection was refused: the first one, and then the less often the more there are."""
        self._refused += 1
        if self._refused & (self._refused - 1) == 0:
            _log.warning(
                "Connections were refused, because there were %d already: %d since the start",
                self.connections_max,
                self._refused,
            )
