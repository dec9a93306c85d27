"""Administrative work: each piece in its own transaction, carried out once even if its commit's answer is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock.store.postgres.attempts import EXHAUSTED, RETRIED, Attempts, unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.domain.failpoints import Failpoints
    from penstock.domain.limits import Limits
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Pool, Session

Result = TypeVar("Result")

_TAKE_TURN = "SELECT penstock.take_turn($1)"
_KEPT = "SELECT result, penstock.confirm(expires_at) FROM penstock.work_outcome WHERE key = $1"
_KEEP = "INSERT INTO penstock.work_outcome (key, expires_at, result) VALUES ($2, penstock.now_ms($1) + $3::bigint, $4)"


class Work:
    """Carries out pieces of work."""

    def __init__(
        self, pool: Pool, *, clock: PinnedClock, limits: Limits, failpoints: Failpoints, new_key: Callable[[], bytes]
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._limits = limits
        self._failpoints = failpoints
        self._new_key = new_key

    async def read(self, action: Callable[[Session], Awaitable[Result]]) -> Result:
        """Do what may be done any number of times."""
        attempts = Attempts()
        while True:
            try:
                async with self._pool.session() as session:
                    return await action(session)
            except (OSError, *RETRIED) as error:
                await attempts.pause(error)
            except EXHAUSTED as error:
                raise unavailable(error) from error

    async def write(
        self, action: Callable[[Session], Awaitable[Result]], result_type: type[Result], *, verb: str | None = None
    ) -> Result:
        """Do something in a transaction, once: its result is kept, and found again if the commit's answer is lost."""
        key = self._new_key()
        attempts = Attempts()
        repeated = passed = False
        if verb is not None:
            await self._failpoints.reach(f"{verb}.begun")
        while True:
            try:
                result = await self._attempt(action, result_type, key, repeated=repeated)
                if verb is not None and not passed:
                    passed = True
                    await self._failpoints.reach(f"{verb}.committed")
            except OSError as error:
                repeated = True
                await attempts.pause(error)
            except RETRIED as error:
                await attempts.pause(error)
            except EXHAUSTED as error:
                raise unavailable(error) from error
            else:
                return result

    async def _attempt(
        self, action: Callable[[Session], Awaitable[Result]], result_type: type[Result], key: bytes, *, repeated: bool
    ) -> Result:
        async with self._pool.session() as session, session.transaction():
            await session.fetch(_TAKE_TURN, key)
            if repeated:
                kept = await session.fetchval(_KEPT, key)
                if kept is not None:
                    return msgspec.msgpack.decode(kept, type=result_type)
            result = await action(session)
            encoded = msgspec.msgpack.encode(result)
            await session.fetch(_KEEP, self._clock.pinned_ms, key, self._limits.outcome_window_ms, encoded)
            return result
