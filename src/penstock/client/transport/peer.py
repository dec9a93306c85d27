"""The server as the transports see it: its addresses, which of them is in use, and the token for it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from penstock.client.errors import ConnectionFailed

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from penstock.client.tokens import Token
    from penstock.client.transport.dialing import Dialer


class Peer:
    """One service at one or more addresses. One address is used until it fails; then the next is.

    Threads share it without a lock: at worst one of them tries an address that another has just given up.
    """

    def __init__(self, dialers: Sequence[Dialer], token: Token, connect_s: float = math.inf) -> None:
        assert dialers
        self._connect_s = connect_s
        self._reached = False
        self._dialers = tuple(dialers)
        self._at = 0
        self._token = token

    @property
    def several(self) -> bool:
        """Whether there is anything to fail over to."""
        return len(self._dialers) > 1

    @property
    def current(self) -> Dialer:
        """The address in use."""
        return self._dialers[self._at]

    def reach_by(self, since: float) -> float:
        """Return until when to look for a server. One that was reached before is there again soon, as a rule; where
        none ever was, the address may be wrong.
        """
        return math.inf if self._reached else since + self._connect_s

    def token(self) -> str:
        """Return the token to send, or an empty text."""
        return self._token.current()

    def changed_token(self) -> bool:
        """Return whether there is another token than the one that was refused."""
        return self._token.reread()

    def refused(self) -> None:
        """Go on to the next address: the one in use says that it cannot serve now."""
        self.failed(self.current)

    def failed(self, dialer: Dialer) -> None:
        """Go on to the next address, if this one is still in use."""
        if self.current is dialer:
            self._at = (self._at + 1) % len(self._dialers)

    def dial(self, deadline: float) -> tuple[Dialer, socket.socket]:
        """Connect to the address in use, or to the next that can be reached; `ConnectionFailed` if none can."""
        faults = []
        for _ in self._dialers:
            dialer = self.current
            try:
                connected = dialer.dial(deadline)
                self._reached = True
                return dialer, connected
            except ConnectionFailed as error:
                faults.append(error.reason)
                self.failed(dialer)
                if time.monotonic() >= deadline:
                    break
        raise ConnectionFailed(" ".join(faults))

    def close(self) -> None:
        """Let go of what the dialers hold. It may block."""
        for dialer in self._dialers:
            dialer.close()
