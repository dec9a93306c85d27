"""Handlers of users, called with a message or a batch: sync ones in threads, inside middleware and idempotency."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client.worker.threads import Threads

Handler = Callable[[Any], object]
"""Takes a `Message`, or a list of them in a batch; sync or async."""
NextHandler = Callable[[], Awaitable[object]]
SqsMiddleware = Callable[[Any, NextHandler], Awaitable[object]]
"""`async def around(message, call_next)`: runs around the handler; given the list of messages in a batch."""
KeyOf = Callable[[Message], Any]


class IdempotencyHook(Protocol):
    """Wraps a handler so that a repeated delivery does not run it again, as `penstock.Idempotency` does."""

    def __call__(self, *, key: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator; `key` is called with what the handler is called with."""


def default_key(message: Message) -> str:
    """Return the payload's `id` if the body is a JSON object with one, else the message's own id."""
    try:
        payload = json.loads(message.body)
    except (ValueError, RecursionError):
        return message.id
    named = payload.get("id") if isinstance(payload, dict) else None
    return str(named) if isinstance(named, str | int) and not isinstance(named, bool) and named != "" else message.id


class Calls:
    """Calls a handler. What it raises is raised here."""

    def __init__(
        self,
        handler: Handler,
        threads: Threads,
        middleware: Sequence[SqsMiddleware] = (),
    ) -> None:
        self._handler = handler
        self._is_async = is_coroutine_function(handler)
        self._threads = threads
        self._middleware = middleware

    async def __call__(self, given: Message | list[Message]) -> object:
        async def innermost() -> object:
            if self._is_async:
                return await self._handler(given)  # type: ignore[misc] # It is a coroutine function.
            result: object = await self._threads.run(self._handler, given)
            # A function may return a coroutine, as a lambda around an async one does.
            return await result if inspect.isawaitable(result) else result

        call: NextHandler = innermost
        for around in reversed(self._middleware):
            call = _wrapped(around, given, call)
        return await call()


def _wrapped(around: SqsMiddleware, given: Message | list[Message], call_next: NextHandler) -> NextHandler:
    return lambda: around(given, call_next)


def is_coroutine_function(handler: object) -> bool:
    """Return whether calling this returns a coroutine, also for objects with an async `__call__`."""
    # Not whether it can be called, but how.
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def check_hooks(on_poison: object, middleware: object, on_event: object) -> None:
    """Raise `ConsumerInvalid` unless what is called besides the handler can be."""
    if on_poison is not None and not callable(on_poison):
        raise ConsumerInvalid(f"on_poison is a function of a message and an error, not {on_poison!r}.")
    if on_event is not None and (not callable(on_event) or is_coroutine_function(on_event)):
        raise ConsumerInvalid(f"on_event is a plain function of an event, which is not awaited, not {on_event!r}.")
    if not isinstance(middleware, list | tuple) or not all(is_coroutine_function(around) for around in middleware):
        raise ConsumerInvalid(f"middleware is a list of async functions (message, call_next), not {middleware!r}.")


def batch_failures(messages: Sequence[Message], returned: object) -> dict[str, Exception]:
    """Read which messages of a batch failed from what its handler returned; errors by id.

    None or nothing: none failed. Messages or their ids: these failed. A mapping of either: these failed, with these
    errors. The answer of an AWS Lambda function (`batchItemFailures`) is understood too. Raises `ConsumerInvalid` for
    anything else, upon which nothing may be deleted.
    """
    if returned is None:
        return {}
    if isinstance(returned, Mapping) and "batchItemFailures" in returned:
        returned = [item["itemIdentifier"] for item in returned["batchItemFailures"]]
    if isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
        raise ConsumerInvalid(
            f"A batch handler returns None, or the messages that failed, not {type(returned).__name__}."
        )
    known = {message.id for message in messages}
    failures: dict[str, Exception] = {}
    for entry in returned:
        name = entry.id if isinstance(entry, Message) else entry
        if name not in known:
            raise ConsumerInvalid(f"A batch handler said that {name!r} failed, which is no message of the batch.")
        error = returned[entry] if isinstance(returned, Mapping) else None
        failures[str(name)] = error if isinstance(error, Exception) else RuntimeError("the batch handler said so")
    return failures
