"""How much of unfinished requests a process holds, of all connections together."""

from __future__ import annotations

MIB = 1024 * 1024
OWN_BYTES = 32 * 1024
"""What every connection may hold besides: so small requests always get through."""
ANONYMOUS_SHARE = 4
"""Where callers have to say who they are, those who have not may fill one part in this many."""


class RequestMemory:
    """A budget of bytes. Nobody waits for it: what does not fit is refused."""

    def __init__(self, bytes_max: int = 256 * MIB) -> None:
        self._bytes_max = bytes_max
        self.taken_bytes = 0

    def take(self, count: int, recognised: bool) -> bool:  # noqa: FBT001 - as in `hold`
        """Take bytes from the budget, if there are as many; for an anonymous caller, from the first part of it."""
        if self.taken_bytes + count > (self._bytes_max if recognised else self._bytes_max // ANONYMOUS_SHARE):
            return False
        self.taken_bytes += count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes that were taken."""
        self.taken_bytes -= count


class ConnectionMemory:
    """What one connection holds. Beyond `OWN_BYTES` it is taken from the budget that all of them share."""

    __slots__ = ("_held_bytes", "_shared", "_taken_bytes")

    def __init__(self, shared: RequestMemory) -> None:
        self._shared = shared
        self._held_bytes = 0
        self._taken_bytes = 0

    def hold(self, count: int, recognised: bool = False) -> bool:  # noqa: FBT001, FBT002 - by position, since it is called for every request
        """Account for bytes that are there or are going to be; False says that there is no room for them."""
        held_bytes = self._held_bytes + count
        beyond_bytes = held_bytes - OWN_BYTES - self._taken_bytes
        if beyond_bytes > 0:
            if not self._shared.take(beyond_bytes, recognised):
                return False
            self._taken_bytes += beyond_bytes
        self._held_bytes = held_bytes
        return True

    def free(self, count: int) -> None:
        """Account for bytes that are done with."""
        self._held_bytes -= count
        if self._taken_bytes:
            kept_bytes = max(0, self._held_bytes - OWN_BYTES)
            if kept_bytes < self._taken_bytes:
                self._shared.give_back(self._taken_bytes - kept_bytes)
                self._taken_bytes = kept_bytes

    def close(self) -> None:
        """Free everything."""
        self.free(self._held_bytes)
