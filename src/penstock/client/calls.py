"""Calls of the job API without I/O: what is sent, how the answer is read, and when the same call is sent again."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from penstock.client.errors import (
    AnswerInvalid,
    IdempotencyKeyBusy,
    NotAuthenticated,
    ProblemError,
    TooMany,
    TransportError,
    error_of,
)
from penstock.client.transport.http1 import Outgoing
from penstock.wire.jobs.answers import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.transport.http1 import Answer

BACKOFF_S = 0.05
BACKOFF_S_MAX = 2.0
TRY_S = 10.0
"""Where there are several addresses: after this long without an answer the next is tried."""
_NO_ANSWER = frozenset({502, 503, 504})
"""The server, or a proxy in its place, says that the call was not carried out, or that its outcome is not known."""
_read_problem = msgspec.json.Decoder(Problem).decode

FIRST_TRY = "penstock-first-try: true\r\n"
"""Says that nobody can know the id in this request yet, so that the server may refuse it without looking for it."""

T = TypeVar("T")


class Call(Generic[T]):
    """One call. What identifies it is in `request`, so it can be repeated as it is after a lost answer."""

    __slots__ = ("done_on_repeat", "first", "read", "request", "retry_too_many", "wait", "wait_s")

    def __init__(
        self,
        method: str,
        target: str,
        read: Callable[[bytes, bool], T],
        body: bytes = b"",
        *,
        done_on_repeat: tuple[type[ProblemError], ...] = (),
        retry_too_many: bool = False,
        first_headers: str = "",
    ) -> None:
        self.request = Outgoing(method, target, body)
        self.first = Outgoing(method, target, body, first_headers) if first_headers else self.request
        """The request as it is sent until it may have been carried out."""
        self.read = read
        """Reads the body of an answer; the second argument says whether the call had been sent before."""
        self.done_on_repeat = done_on_repeat
        """Problems that mean, if the call had been sent before, that it was carried out then."""
        self.retry_too_many = retry_too_many
        self.wait_s = 0.0
        """How long the server may wait before it answers."""
        self.wait: Callable[[float], Outgoing] | None = None
        """Makes the request anew with the time that is left to wait."""

    def waiting(self, wait_s: float, wait: Callable[[float], Outgoing]) -> Call[T]:
        """Make it a long poll: a repeat waits only for what is left of `wait_s`."""
        self.wait_s = wait_s
        self.wait = wait
        self.first = msgspec.structs.replace(self.request, waits=True)
        return self


WAIT_S = 20.0
"""How long one request waits for a job or a gather to end; waiting for longer takes several."""


def waiting(path: str, wait_s: float) -> Outgoing:
    """Make a request that is answered once what it asks for has ended, or after `wait_s`."""
    return Outgoing("GET", f"{path}?wait={wait_s:.3f}", waits=True) if wait_s else Outgoing("GET", path)


class Recipient(Protocol):
    """What a call is sent to, as far as repeats are concerned."""

    @property
    def several(self) -> bool:
        """Whether there is another address to try."""

    def reach_by(self, since: float) -> float:
        """Return until when a call that was made at `since` looks for it; for ever if it was ever reached."""

    def refused(self) -> None:
        """Go on to another address, if there is one."""

    def changed_token(self) -> bool:
        """Return whether there is another token to try."""


class Tries(Generic[T]):
    """The tries of one call, until it is answered or its time is up.

    The call is repeated only if no complete answer came: the connection was lost or refused, or the answer was 503 or
    of a proxy that got none itself; or if the answer says to wait for the first request with its idempotency key.
    """

    __slots__ = (
        "_call",
        "_deadline",
        "_ended",
        "_pauses",
        "_peer",
        "_repeated",
        "_since",
        "_token_tried",
        "_wait_until",
        "value",
    )

    value: T

    def __init__(self, call: Call[T], peer: Recipient, timeout_s: float) -> None:
        now = time.monotonic()
        self._call = call
        self._peer = peer
        self._since = now
        self._deadline = now + timeout_s + call.wait_s
        self._wait_until = now + call.wait_s
        self._pauses = 0
        self._repeated = False
        self._token_tried = False

    def request(self) -> Outgoing:
        """Return the request to send next."""
        call = self._call
        if not self._repeated:
            return call.first
        if call.wait is None:
            return call.request
        return call.wait(max(self._wait_until - time.monotonic(), 0.0))

    @property
    def deadline(self) -> float:
        """Until when to wait for the answer to this try."""
        if self._peer.several:
            now = time.monotonic()
            return min(self._deadline, max(now, self._wait_until) + TRY_S)
        return self._deadline

    def lost(self, error: TransportError) -> float:
        """Return for how long to pause before the next try, as no complete answer came; raise if there is none."""
        if isinstance(error, AnswerInvalid):
            raise error
        self._repeated = True
        return 0.0 if getattr(error, "at_once", False) else self._pause(error)

    def answered(self, answer: Answer) -> float | None:
        """Read an answer: None if the call is done and has its `value`, else for how long to pause; or raise."""
        call = self._call
        if 200 <= answer.status < 300:
            self.value = _read(call, answer, self._repeated)
            return None
        error = problem_in(answer)
        if answer.status in _NO_ANSWER:
            self._repeated = True
            self._peer.refused()
            return self._pause(error)
        if isinstance(error, IdempotencyKeyBusy) or (isinstance(error, TooMany) and call.retry_too_many):
            return self._pause(error)
        if isinstance(error, NotAuthenticated) and not self._token_tried and self._peer.changed_token():
            self._token_tried = True
            return 0.0
        if self._repeated and isinstance(error, call.done_on_repeat):
            self.value = call.read(b"", True)
            return None
        raise error

    def _pause(self, error: TransportError | ProblemError) -> float:
        """Return how long to wait before the next try; raise the error if the time is up by then."""
        pause_s = backoff(self._pauses)
        self._pauses += 1
        if isinstance(error, ProblemError):
            pause_s += error.retry_after or 0.0
        if time.monotonic() + pause_s >= min(self._deadline, self._peer.reach_by(self._since)):
            raise error
        return pause_s


class Reopening:
    """Decides when a stream that broke or ended is opened anew: until nothing was heard for `timeout_s`."""

    def __init__(self, peer: Recipient, timeout_s: float) -> None:
        self._peer = peer
        self._timeout_s = timeout_s
        self._pauses = 0
        self._heard_at = self._since = time.monotonic()

    @property
    def deadline(self) -> float:
        """Until when to wait for the stream to open."""
        now = time.monotonic()
        return min(self._heard_at + self._timeout_s, now + TRY_S) if self._peer.several else now + self._timeout_s

    def heard(self) -> None:
        """Note that something came."""
        self._heard_at = time.monotonic()
        self._pauses = 0

    def ended(self) -> float:
        """Return for how long to pause, as the server ended the stream: it may be about to stop."""
        self._peer.refused()
        return self._pause(None)

    def lost(self, error: TransportError) -> float:
        """Return for how long to pause, as the stream broke; raise if it is not to be opened again."""
        if isinstance(error, AnswerInvalid):
            raise error
        return self._pause(error)

    def refused(self, answer: Answer) -> float:
        """Return for how long to pause, as the stream could not be opened; raise if it is not to be tried again."""
        error = problem_in(answer)
        if answer.status in _NO_ANSWER:
            self._peer.refused()
            return self._pause(error)
        if isinstance(error, NotAuthenticated) and self._peer.changed_token():
            return 0.0
        raise error

    def _pause(self, error: TransportError | ProblemError | None) -> float:
        pause_s = backoff(self._pauses)
        self._pauses += 1
        until = min(self._heard_at + self._timeout_s, self._peer.reach_by(self._since))
        if error is not None and time.monotonic() + pause_s >= until:
            raise error
        return pause_s


def backoff(pauses: int) -> float:
    """Return for how long to pause after this many pauses: exponential, with full jitter."""
    return random.uniform(0, min(BACKOFF_S * 2 ** min(pauses, 10), BACKOFF_S_MAX))  # noqa: S311 - no secret


def problem_in(answer: Answer) -> ProblemError | AnswerInvalid:
    """Return the error that an answer tells: a problem of the job API, or that it is none of that API."""
    try:
        problem = _read_problem(answer.body)
    except (ValueError, RecursionError):
        start = answer.body[:80].decode("latin-1")
        return AnswerInvalid(f"The server answered {answer.status} without a problem of the job API: {start!r}.")
    return error_of(problem)


def _read(call: Call[T], answer: Answer, repeated: bool) -> T:  # noqa: FBT001 - as `Call.read` takes it
    try:
        return call.read(answer.body, repeated)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerInvalid(f"The answer is not one of the job API: {error}.") from error
