"""Long polls in line: who waits for which queue, in the order of arrival, and what wakes them."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Self

from penstock.domain.errors import OverLimit

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.domain.clock import Clock, Timer


Kind = tuple[str, ...]
"""What those in one line look for, of all that a queue has; nothing means everything."""


class _Line:
    """The tickets of one queue and kind, oldest first, and the instant at which something hidden comes due."""

    __slots__ = ("due_at_ms", "parked", "tickets", "timer")

    def __init__(self) -> None:
        self.tickets: dict[Ticket, None] = {}
        self.parked = 0
        self.due_at_ms: int | None = None
        self.timer: Timer | None = None


class Ticket:
    """A place in a line, taken with `with` before the first look, or a send between the look and the wait wakes nobody.

    A ticket holds at most one signal, which is used up by the look that follows the wait. Leaving with one, or in the
    middle of that look, passes it on, so that none is lost. One timer ends all its waits.
    """

    __slots__ = ("_deadline", "_kind", "_line", "_looking", "_over", "_parked", "_queue_id", "_signalled", "_waiters")

    def __init__(self, waiters: Waiters, queue_id: int, kind: Kind, line: _Line) -> None:
        self._waiters = waiters
        self._queue_id = queue_id
        self._kind = kind
        self._line = line
        self._parked: asyncio.Future[None] | None = None
        self._looking = False
        self._deadline: Timer | None = None
        self._over = False
        # Nobody parked means that nobody found the queue empty: look at once. Otherwise the others were here first.
        self._signalled = line.parked == 0 or waiters.closed

    def __enter__(self) -> Self:
        self._line.tickets[self] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._line.tickets[self]
        if self._deadline is not None:
            self._deadline.cancel()
        if self._signalled or (self._looking and kind is not None):
            self._waiters.pass_on(self._queue_id, self._kind)
        self._waiters.tidy(self._queue_id, self._kind)

    def signal(self) -> None:
        """Say that a look is worth while."""
        self._signalled = True
        self._unpark()

    async def wait(self, clock: Clock, until_ms: int) -> bool:
        """Wait for a signal and use it up; False once `until_ms`, the same in every call, has come."""
        self._looking = False
        if self._deadline is None and not self._signalled:
            self._deadline = clock.call_at(until_ms, self._end)
        if not self._signalled and not self._over:
            self._parked = asyncio.get_running_loop().create_future()
            self._line.parked += 1
            try:
                await self._parked
            finally:
                self._line.parked -= 1
                self._parked = None
        self._looking, self._signalled = self._signalled, False
        return self._looking and not self._over

    def _end(self) -> None:
        self._over = True
        self._unpark()

    def _unpark(self) -> None:
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)


class Waiters:
    """All lines. Whoever makes a message leasable wakes as many tickets of each kind as there may be messages.

    Those of a kind stand in a line of their own: a signal must not be used up by who looks for something else.
    """

    def __init__(self, clock: Clock, *, per_queue_max: int) -> None:
        self._clock = clock
        self._per_queue_max = per_queue_max
        self._lines: dict[int, dict[Kind, _Line]] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nobody may wait any more."""
        return self._closed

    @property
    def parked(self) -> int:
        """How many tickets wait for a signal."""
        return sum(line.parked for lines in self._lines.values() for line in lines.values())

    def ticket(self, queue_id: int, kind: Kind = ()) -> Ticket:
        """Make a ticket for the end of the line of a queue and kind."""
        lines = self._lines.setdefault(queue_id, {})
        if sum(len(line.tickets) for line in lines.values()) >= self._per_queue_max:
            message = f"Too many receives are waiting on this queue. At most {self._per_queue_max} may."
            raise OverLimit(message)
        line = lines.get(kind)
        if line is None:
            line = lines[kind] = _Line()
        return Ticket(self, queue_id, kind, line)

    def wake(self, queue_id: int, count: int = 1) -> None:
        """Signal the first `count` tickets in each line of a queue.

        One that has a signal already covers this one too: its look is yet to come, and if it then takes all that it
        asked for, the next in line is woken. More signals than messages would let later tickets overtake earlier ones.
        """
        for line in self._lines.get(queue_id, {}).values():
            for ticket in itertools.islice(line.tickets, count):
                ticket.signal()

    def pass_on(self, queue_id: int, kind: Kind = ()) -> None:
        """Signal the first ticket of one line: somebody of that kind did not use a signal, or left something."""
        line = self._lines.get(queue_id, {}).get(kind)
        if line is not None:
            for ticket in itertools.islice(line.tickets, 1):
                ticket.signal()

    def wake_all(self, queue_id: int) -> None:
        """Signal every ticket in line, as when the queue is gone."""
        self.wake(queue_id, self._per_queue_max)

    def looked(
        self,
        queue_id: int,
        kind: Kind = (),
        *,
        since_ms: int,
        asked: int,
        found: int,
        hides_ms: int,
        next_in_ms: int | None,
    ) -> None:
        """Note what a look found that began at `since_ms`, so that those who still wait learn when to look.

        That is when something hidden comes due, which was `next_in_ms` then, or when what it found does, after
        `hides_ms`. It is at once where this look may have left something, or has messages and cannot tell what else
        there is.
        """
        line = self._lines.get(queue_id, {}).get(kind)
        if line is None:
            return
        if found:
            if found >= asked or not next_in_ms:
                self.pass_on(queue_id, kind)
            next_in_ms = min(hides_ms, next_in_ms or hides_ms)
        if next_in_ms is not None:
            self._arm(queue_id, kind, line, since_ms + next_in_ms)

    def close(self) -> None:
        """Let all who wait look once more and go, and nobody wait again."""
        self._closed = True
        for queue_id in list(self._lines):
            self.wake_all(queue_id)

    def tidy(self, queue_id: int, kind: Kind = ()) -> None:
        """Forget a line in which nobody stands."""
        lines = self._lines.get(queue_id, {})
        line = lines.get(kind)
        if line is not None and not line.tickets:
            self._disarm(line)
            del lines[kind]
            if not lines:
                del self._lines[queue_id]

    def _come_due(self, queue_id: int, kind: Kind, line: _Line) -> None:
        line.due_at_ms = line.timer = None
        self.pass_on(queue_id, kind)

    def _arm(self, queue_id: int, kind: Kind, line: _Line, at_ms: int) -> None:
        """Set the timer, unless it is set for an earlier instant anyway."""
        if line.due_at_ms is None or at_ms < line.due_at_ms:
            self._disarm(line)
            line.due_at_ms = at_ms
            line.timer = self._clock.call_at(at_ms, lambda: self._come_due(queue_id, kind, line))

    @staticmethod
    def _disarm(line: _Line) -> None:
        if line.timer is not None:
            line.timer.cancel()
        line.due_at_ms = line.timer = None
