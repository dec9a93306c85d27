"""What a lease does is written once, as a script of steps, and is run for sync callers and for async ones."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.client.errors import IdempotencyInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Executor, Future

    from penstock.domain.failpoints import Failpoints

T = TypeVar("T")


class Ask(NamedTuple):
    """Call the store. If the caller leaves before it answers, `undo` is called with the answer."""

    call: Callable[[], Any]
    undo: Callable[[Any], object] | None = None


class Check(NamedTuple):
    """Call `verify`, which may be async."""

    call: Callable[[], Any]


class Pause(NamedTuple):
    """Wait."""

    seconds: float


class Reach(NamedTuple):
    """Pass a place where a test can step in."""

    failpoints: Failpoints
    place: str


Step = Ask | Check | Pause | Reach


def run(script: Generator[Step, Any, T]) -> T:
    """Run a script on this thread, which it blocks."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = script.send(answer) if error is None else script.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, error = None, None
        try:
            answer = _take(step)
        except BaseException as raised:  # noqa: BLE001 - the script sees it, and raises it again
            error = raised


def _take(step: Step) -> Any:  # noqa: ANN401 - whatever the step answers
    match step:
        case Ask(call):
            return call()
        case Check(call):
            answer = call()
            if inspect.isawaitable(answer):
                if inspect.iscoroutine(answer):
                    answer.close()
                raise IdempotencyInvalid("verify is async, and the function that it is for is not.")
            return answer
        case Pause(seconds):
            time.sleep(seconds)
        case Reach(failpoints, place):
            if failpoints:
                _step_in(failpoints, place)
    return None


def _step_in(failpoints: Failpoints, place: str) -> None:
    reached = failpoints.reach(place)
    try:
        reached.send(None)
    except StopIteration:
        return
    reached.close()
    raise AssertionError(f"what is armed at {place} waits, and a blocking caller has no event loop")


async def run_async(script: Generator[Step, Any, T], executor: Executor) -> T:
    """Run a script for the running event loop: what blocks is called on other threads."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = script.send(answer) if error is None else script.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, error = None, None
        try:
            answer = await _take_async(step, executor)
        except BaseException as raised:  # noqa: BLE001 - the script sees it, and raises it again
            error = raised


async def _take_async(step: Step, executor: Executor) -> Any:  # noqa: ANN401 - whatever the step answers
    match step:
        case Ask(call, undo):
            return await _asked(executor.submit(call), undo)
        case Check(call):
            # As all sync code that may block: on another thread, with this context's variables.
            answer = await asyncio.to_thread(call)
            return await answer if inspect.isawaitable(answer) else answer
        case Pause(seconds):
            await asyncio.sleep(seconds)
        case Reach(failpoints, place):
            await failpoints.reach(place)
    return None


async def _asked(future: Future[Any], undo: Callable[[Any], object] | None) -> Any:  # noqa: ANN401 - as the call answers
    try:
        # Shielded, so that a call which has not begun is not dropped: a release or a completion must be made.
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        if undo is not None:
            future.add_done_callback(lambda done: done.exception() is None and undo(done.result()))
        raise
