"""`@idem(…)`: a function that runs once for each key, with the types that it had."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import msgspec

from penstock.client.errors import IdempotencyInvalid
from penstock.client.idempotency.keys import Key, Template, fingerprint_of, make_key, scope_of
from penstock.client.idempotency.leases import Terms
from penstock.client.idempotency.results import ResultCodec

if TYPE_CHECKING:
    from penstock.client.idempotency.idempotency import Idempotency
    from penstock.client.idempotency.leases import LeaseBlock

P = ParamSpec("P")
R = TypeVar("R")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `@idem(…)` was given."""

    key: str | Callable[..., Key]
    verify: Callable[..., Any] | None
    scope: str | None
    fingerprint: bool | Callable[..., Any]
    ttl_ms: int
    lease_ms: int
    wait_s: float


class Wrapping:
    """Wraps functions, sync or async; their types stay."""

    def __init__(self, idempotency: Idempotency, options: Options) -> None:
        self._idempotency = idempotency
        self._options = options

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, run once for each key; raises `IdempotencyInvalid`."""
        is_async = _check(function)
        blocks = _Blocks(self._idempotency, self._options, function, is_async=is_async)
        if is_async:

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function has them
                async with blocks.make(args, kwargs) as lease:
                    if not lease.done:
                        lease.complete(await cast("Any", function)(*args, **kwargs))
                return lease.result

            return cast("Callable[P, R]", call_async)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function has them
            with blocks.make(args, kwargs) as lease:
                if not lease.done:
                    lease.complete(_refuse_awaitable(function(*args, **kwargs), blocks.name))
            return lease.result

        return cast("Callable[P, R]", call)


class _Blocks:
    """Makes the block that one call of a function runs in."""

    def __init__(
        self, idempotency: Idempotency, options: Options, function: Callable[..., Any], *, is_async: bool
    ) -> None:
        self._idempotency = idempotency
        self._options = options
        self._function = function
        self.name = getattr(function, "__qualname__", repr(function))
        self._scopes = (idempotency.scope, options.scope or scope_of(function, (idempotency.scope,)))
        self._key = Template(options.key, function) if isinstance(options.key, str) else options.key
        if not callable(self._key):
            raise IdempotencyInvalid(f"key is a function or a template of the arguments of {self.name}.")
        if not is_async and inspect.iscoroutinefunction(options.verify):
            raise IdempotencyInvalid(f"verify is async, and {self.name} is not.")
        self._signature = inspect.signature(function) if options.fingerprint is True else None

    @functools.cached_property
    def _codec(self) -> ResultCodec:
        # On first use: the annotation may name what stands further down in the module.
        return ResultCodec.of(self.name, self._function, self._idempotency.result_bytes_max)

    def make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LeaseBlock[Any]:
        """Return the block; raises before anything runs if there is no key."""
        options = self._options
        verify = None if options.verify is None else functools.partial(options.verify, *args, **kwargs)
        return self._idempotency.block(
            Terms(
                key=make_key(self._scopes, self._key(*args, **kwargs)),
                lease_ms=options.lease_ms,
                ttl_ms=options.ttl_ms,
                wait_s=options.wait_s,
                fingerprint=self._fingerprint(args, kwargs),
                verify=verify,
                codec=self._codec,
            )
        )

    def _fingerprint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        fingerprint = self._options.fingerprint
        if self._signature is not None:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return fingerprint_of(bound.arguments)
        return fingerprint_of(fingerprint(*args, **kwargs)) if callable(fingerprint) else ""


def _check(function: Callable[..., Any]) -> bool:
    """Return whether a function is async; raises `IdempotencyInvalid` unless it returns one result."""
    if not callable(function):
        raise IdempotencyInvalid(f"{function!r} is no function.")
    plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    called: Any = function if plain else cast("Any", function).__call__
    for one in (function, called):
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise IdempotencyInvalid(f"{function!r} is a generator. What it yields cannot be recorded as one result.")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _refuse_awaitable(result: R, name: str) -> R:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise IdempotencyInvalid(f"{name} returned an awaitable, and is no async function: nothing was awaited.")
    return result
