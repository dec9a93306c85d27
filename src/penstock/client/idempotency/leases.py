"""`Lease`: one holder's right to work on a key, and the block of code that it lasts for."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from penstock.client.errors import (
    FingerprintMismatch,
    IdempotencyError,
    IdempotencyInProgress,
    IdempotencyLeaseLost,
    ResultInvalid,
)
from penstock.client.idempotency.lru import RecentlyUsed
from penstock.client.idempotency.records import Completed, Held, Mismatched, Records, Started
from penstock.client.idempotency.renewals import Renewals, Renewed
from penstock.client.idempotency.results import ResultCodec
from penstock.client.idempotency.steps import Ask, Check, Pause, Reach, run, run_async
from penstock.client.idempotency.verification import read_answer
from penstock.domain.clock import Clock
from penstock.domain.failpoints import Failpoints

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from penstock.client.idempotency.records import Taken
    from penstock.client.idempotency.steps import Step

T = TypeVar("T")

_log = logging.getLogger("penstock.idempotency")

POLL_S_MIN = 0.02
POLL_S_MAX = 1.0
"""Who waits for another holder looks again after 20 ms, then after twice as long each time, up to a second."""


class Places:
    """Where a test can step in: around the six steps of check-before-doing."""

    START = "idempotency.start"
    STARTED = "idempotency.started"
    CHECKED = "idempotency.checked"
    RETURNED = "idempotency.returned"
    COMPLETED = "idempotency.completed"


class Tools(msgspec.Struct, frozen=True):
    """What all leases of an `Idempotency` work with."""

    records: Records
    recent: RecentlyUsed
    renewals: Renewals
    clock: Clock
    failpoints: Failpoints
    new_owner: Callable[[], str]
    executor: Callable[[], Executor]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How one key is leased."""

    key: str
    lease_ms: int
    ttl_ms: int
    wait_s: float
    fingerprint: str
    verify: Callable[[], Any] | None
    codec: ResultCodec


class Lease(Generic[T]):
    """The right to work on a key. Where `done` is true the work is done already, and `result` has what it returned."""

    def __init__(self, key: str, codec: ResultCodec, attempts: int, renewed: Renewed | None) -> None:
        self.key = key
        """The key as it is stored: scope and values."""
        self.attempts = attempts
        """How many holders began, this one included. After the first, an effect may have happened already."""
        self.done = False
        """Whether the work was done before this block: by another holder, or as `verify` found."""
        self._codec = codec
        self._renewed = renewed
        self._stored: Completed | None = None
        self._result: Any = None
        self._given = False

    @property
    def result(self) -> T:
        """The result, if it is known; otherwise None. Raises `ResultInvalid` if it could not be stored."""
        found: T = self._result if self._stored is None else self._codec.decode(self._stored.result)
        return found

    @property
    def lost(self) -> bool:
        """Whether the lease is over before its holder has completed: another holder may work on the key now."""
        return self._renewed is not None and self._renewed.lost

    def complete(self, result: T | None = None) -> None:
        """Say that the work is done, with this result. It is recorded at the end of the block, however that ends."""
        self._result = result
        self._given = True


class LeaseBlock(Generic[T]):
    """Takes a key for a block of code, `with` or `async with`. A block is entered once."""

    def __init__(self, tools: Tools, terms: Terms) -> None:
        self._tools = tools
        self._terms = terms
        self._owner = tools.new_owner()
        self._pid = os.getpid()
        self._lease: Lease[T] | None = None

    def __enter__(self) -> Lease[T]:
        return run(self._open())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self._close(error))

    async def __aenter__(self) -> Lease[T]:
        return await run_async(self._open(), self._tools.executor())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await run_async(self._close(error), self._tools.executor())

    # Each of these is written once and run by `steps`, for sync and for async callers.

    def _open(self) -> Generator[Step, Any, Lease[T]]:
        assert self._lease is None, "a block is entered once"
        tools, terms = self._tools, self._terms
        known = tools.recent.get(terms.key)
        if known is not None:
            return self._done(known)
        yield Reach(tools.failpoints, Places.START)
        give_up_at = time.monotonic() + terms.wait_s
        pause_s = POLL_S_MIN
        while True:
            asked_ms = tools.clock.now_ms()
            taken: Taken = yield Ask(self._start, self._undo)
            match taken:
                case Completed():
                    tools.recent.put(terms.key, taken)
                    return self._done(taken)
                case Mismatched():
                    raise FingerprintMismatch(terms.key)
                case Started():
                    return (yield from self._begin(taken, asked_ms))
                case Held(left_ms):
                    left_s = give_up_at - time.monotonic()
                    if left_s <= 0:
                        raise IdempotencyInProgress(terms.key, left_ms / 1_000)
                    yield Pause(min(pause_s, left_s, max(left_ms / 1_000, POLL_S_MIN)))
                    pause_s = min(pause_s * 2, POLL_S_MAX)

    def _begin(self, taken: Started, held_from_ms: int) -> Generator[Step, Any, Lease[T]]:
        """Hold the key, and find out whether the effect of an earlier attempt has happened."""
        tools, terms = self._tools, self._terms
        renewed = Renewed(terms.key, self._owner, terms.lease_ms, terms.ttl_ms, held_from_ms)
        lease = self._lease = Lease(terms.key, terms.codec, taken.attempts, renewed)
        tools.renewals.add(renewed)
        try:
            yield Reach(tools.failpoints, Places.STARTED)
            if taken.attempts > 1 and terms.verify is not None:
                found = read_answer((yield Check(terms.verify)), terms.codec)
                yield Reach(tools.failpoints, Places.CHECKED)
                if found is not None:
                    lease.complete(found.result)
                    yield from self._complete(lease)
                    lease.done = True
                    return lease
            else:
                yield Reach(tools.failpoints, Places.CHECKED)
        except GeneratorExit:
            tools.renewals.remove(renewed)
            raise
        except BaseException:
            # Without an answer it is not known whether the effect happened, so the function is not run.
            yield from self._release(lease)
            raise
        return lease

    def _close(self, error: BaseException | None) -> Generator[Step, Any, None]:
        lease = self._lease
        if lease is None or lease.done or self._pid != os.getpid():
            return  # A forked child does not hold what its parent holds.
        if error is None or lease._given:  # noqa: SLF001 - the two are one
            yield from self._complete(lease)
        else:
            yield from self._release(lease)

    def _complete(self, lease: Lease[T]) -> Generator[Step, Any, None]:
        tools, terms = self._tools, self._terms
        trouble: ResultInvalid | None = None
        written: bytes | None = None
        try:
            written = terms.codec.encode(lease._result)  # noqa: SLF001 - the two are one
        except ResultInvalid as invalid:
            # The effect has happened, so the record is completed without its result: to run again would double it.
            trouble = invalid
        try:
            yield Reach(tools.failpoints, Places.RETURNED)
            if lease._renewed is not None:  # noqa: SLF001 - the two are one
                lease._renewed.ending = True  # noqa: SLF001 - as above
            held: bool = yield Ask(
                functools.partial(tools.records.complete, terms.key, self._owner, written, ttl_ms=terms.ttl_ms)
            )
        finally:
            self._stop_renewing(lease)
        if not held:
            raise IdempotencyLeaseLost(terms.key)
        tools.recent.put(terms.key, Completed(written, lease.attempts, terms.ttl_ms, terms.fingerprint))
        yield Reach(tools.failpoints, Places.COMPLETED)
        if trouble is not None:
            raise trouble

    def _release(self, lease: Lease[T]) -> Generator[Step, Any, None]:
        """Give the key up. If that fails, what made us do so counts: the lease ends by itself."""
        self._stop_renewing(lease)
        try:
            yield Ask(functools.partial(self._tools.records.release, self._terms.key, self._owner))
        except IdempotencyError as error:
            _log.warning("%s could not be given up, and stays taken until its lease ends: %s", self._terms.key, error)

    def _done(self, record: Completed) -> Lease[T]:
        terms = self._terms
        if terms.fingerprint and record.fingerprint and terms.fingerprint != record.fingerprint:
            raise FingerprintMismatch(terms.key)
        lease = self._lease = Lease(terms.key, terms.codec, record.attempts, None)
        lease.done = True
        lease._stored = record  # noqa: SLF001 - the two are one
        return lease

    def _start(self) -> Taken:
        terms = self._terms
        return self._tools.records.start(
            terms.key, self._owner, lease_ms=terms.lease_ms, ttl_ms=terms.ttl_ms, fingerprint=terms.fingerprint
        )

    def _undo(self, taken: Taken) -> None:
        if isinstance(taken, Started):
            self._tools.records.release(self._terms.key, self._owner)

    def _stop_renewing(self, lease: Lease[T]) -> None:
        if lease._renewed is not None:  # noqa: SLF001 - the two are one
            self._tools.renewals.remove(lease._renewed)  # noqa: SLF001 - as above
