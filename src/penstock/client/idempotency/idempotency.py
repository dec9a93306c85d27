"""`Idempotency`: runs a function once for each key, and returns the recorded result to whoever comes again."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from penstock.client import forking
from penstock.client.durations import Duration, milliseconds, seconds
from penstock.client.errors import IdempotencyInvalid
from penstock.client.idempotency.keys import Fields, fingerprint_of, make_key
from penstock.client.idempotency.leases import LeaseBlock, Terms, Tools
from penstock.client.idempotency.lru import RecentlyUsed
from penstock.client.idempotency.renewals import Renewals
from penstock.client.idempotency.results import RESULT_BYTES_MAX, ResultCodec
from penstock.client.idempotency.wrapping import Options, Wrapping
from penstock.domain.clock import SystemClock
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import OrderedIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.client.idempotency.keys import Key
    from penstock.client.idempotency.records import Records
    from penstock.domain.clock import Clock

T = TypeVar("T")

LEASE_MS_MIN = 100
LRU_BYTES = 16 * 1024 * 1024
THREADS = 8
"""How many calls of async code the store is asked for at the same time."""


class Idempotency:
    """Runs functions once for each key: `@idem(key=…)` around a function, or `idem.lease(key)` around a block.

    `ttl` is how long a record is kept, and `lease` how long a holder that died keeps its key. While a holder lives,
    its lease is renewed. `lru` and `lru_bytes` bound what is remembered here of completed records; 0 remembers none.
    `scope` comes before the scope of each function. `wait` is how long to wait for another holder, before
    `IdempotencyInProgress` is raised. All of it can be used from any thread, event loop and forked process.
    """

    def __init__(  # noqa: PLR0913 - each has a default, and its own use
        self,
        records: Records,
        *,
        ttl: Duration = "7d",
        lease: Duration = 60,
        lru: int = 1_000,
        lru_bytes: int = LRU_BYTES,
        scope: str = "",
        wait: Duration = 0,
        result_bytes_max: int = RESULT_BYTES_MAX,
        clock: Clock | None = None,
        failpoints: Failpoints | None = None,
    ) -> None:
        self._ttl, self._lease = ttl, lease
        self._times(None, None)
        self._wait_s = seconds(wait, "wait")
        for name, value in {"lru": lru, "lru_bytes": lru_bytes, "result_bytes_max": result_bytes_max}.items():
            if type(value) is not int or value < 0:
                raise ValueError(f"{name} is a whole number, 0 or more, not {value!r}.")
        _check_store(records, result_bytes_max)
        self.records = records
        self.scope = scope
        self.result_bytes_max = result_bytes_max
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        clock = clock or SystemClock()
        self._recent = RecentlyUsed(clock.now_ms, lru, lru_bytes)
        self.renewals = Renewals(records, clock)
        ids = OrderedIds()
        self._tools = Tools(
            records,
            self._recent,
            self.renewals,
            clock,
            Failpoints() if failpoints is None else failpoints,
            ids.new_id,
            self.threads,
        )
        self._forked = _Forked(self)
        forking.register(self._forked)

    def __call__(
        self,
        *,
        key: str | Callable[..., Key],
        verify: Callable[..., Any] | None = None,
        scope: str | None = None,
        fingerprint: bool | Callable[..., Any] = False,
        wait: Duration | None = None,
        ttl: Duration | None = None,
        lease: Duration | None = None,
    ) -> Wrapping:
        """Return a decorator that runs a function, sync or async, once for each key.

        `key` is called with the function's arguments, or is a template of them such as `"{order_id}-{action}"`.
        `verify` is called with them when an earlier attempt began and did not complete: it returns the result if the
        effect has happened, otherwise None, and may be async if the function is. Without `verify` the function runs
        again. `scope` is the function's module and name unless you give one. `fingerprint` refuses a key that was used
        with other arguments: True compares all of them, a function what it returns.
        """
        ttl_ms, lease_ms = self._times(ttl, lease)
        return Wrapping(
            self,
            Options(
                key=key,
                verify=verify,
                scope=scope,
                fingerprint=fingerprint,
                ttl_ms=ttl_ms,
                lease_ms=lease_ms,
                wait_s=self._wait_s if wait is None else seconds(wait, "wait"),
            ),
        )

    @overload
    def lease(
        self,
        key: Key,
        *,
        returns: type[T],
        scope: str = ...,
        verify: Callable[[], Any] | None = ...,
        fingerprint: object = ...,
        wait: Duration | None = ...,
        ttl: Duration | None = ...,
        lease: Duration | None = ...,
    ) -> LeaseBlock[T]: ...

    @overload
    def lease(
        self,
        key: Key,
        *,
        scope: str = ...,
        verify: Callable[[], Any] | None = ...,
        fingerprint: object = ...,
        wait: Duration | None = ...,
        ttl: Duration | None = ...,
        lease: Duration | None = ...,
    ) -> LeaseBlock[Any]: ...

    def lease(
        self,
        key: Key,
        *,
        returns: Any = Any,
        scope: str = "",
        verify: Callable[[], Any] | None = None,
        fingerprint: object = None,
        wait: Duration | None = None,
        ttl: Duration | None = None,
        lease: Duration | None = None,
    ) -> LeaseBlock[Any]:
        """Return a block, `with` or `async with`, that holds a key; see `Lease`.

        If it ends without an exception, the key is completed, with the result that `lease.complete` was given. If it
        ends with one, the key is given up at once. `returns` is the type of `lease.result`.
        """
        made = make_key((self.scope, scope), key)
        ttl_ms, lease_ms = self._times(ttl, lease)
        return self.block(
            Terms(
                key=made,
                lease_ms=lease_ms,
                ttl_ms=ttl_ms,
                wait_s=self._wait_s if wait is None else seconds(wait, "wait"),
                fingerprint="" if fingerprint is None else fingerprint_of(fingerprint),
                verify=verify,
                codec=ResultCodec(made, returns, self.result_bytes_max),
            )
        )

    @staticmethod
    def fields(*names: str) -> Fields:
        """Return a key function of fields of the first argument, such as `"order_id,action"` or `"order.id"`."""
        return Fields(*names)

    def forget(self, key: Key, *, scope: str = "") -> None:
        """Remove a record, so that its key runs again. Other processes may remember it until its time is over."""
        made = make_key((self.scope, scope), key)
        self._recent.drop(made)
        self.records.forget(made)

    def check(self) -> None:
        """Check that the store can be used, for example when a program starts. The first call does so, too."""
        self.records.check()

    def close(self) -> None:
        """End the threads and close the store's connections. What is held stays held until its lease ends."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        self.records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def block(self, terms: Terms) -> LeaseBlock[Any]:
        """Return a block that holds a key on these terms."""
        return LeaseBlock(self._tools, terms)

    def forget_parent(self) -> None:
        """Have no threads, locks and leases of the parent, in a forked child."""
        self._lock = threading.Lock()
        self._executor = None
        self._recent.after_fork()
        self.renewals.after_fork()

    def threads(self) -> Executor:
        """Return where the store is asked for async code."""
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(THREADS, "penstock-idempotency")
            return self._executor

    def _times(self, ttl: Duration | None, lease: Duration | None) -> tuple[int, int]:
        ttl_ms = milliseconds(self._ttl if ttl is None else ttl, "ttl")
        lease_ms = milliseconds(self._lease if lease is None else lease, "lease")
        if lease_ms < LEASE_MS_MIN:
            raise ValueError(f"lease is at least {LEASE_MS_MIN / 1_000:g} seconds, to be renewed in time.")
        if ttl_ms < lease_ms:
            raise ValueError("ttl is at least as long as the lease: a record must outlast its holder.")
        return ttl_ms, lease_ms


def _check_store(records: object, result_bytes_max: int) -> None:
    if isinstance(records, type) or not callable(getattr(records, "start", None)):
        raise IdempotencyInvalid(
            f'Idempotency needs a store of records, such as SQLiteRecords("records.db"), not {records!r}.'
        )
    kept: int | None = getattr(records, "RESULT_BYTES_MAX", None)
    if kept is not None and result_bytes_max > kept:
        raise ValueError(
            f"result_bytes_max is at most {kept:,} with {type(records).__name__}, not {result_bytes_max:,}."
        )


class _Forked:
    """Has an `Idempotency` be as new in every forked child."""

    def __init__(self, idempotency: Idempotency) -> None:
        self._idempotency = weakref.ref(idempotency)

    def descriptors(self) -> Iterable[int]:
        """Return none: the store has them."""
        return ()

    def forget(self) -> None:
        """Be as new."""
        if (idempotency := self._idempotency()) is not None:
            idempotency.forget_parent()
