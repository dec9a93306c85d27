"""Tasks and a worker on every kind of URL."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import functools
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from penstock import Context, Discard, Next, Penstock, Retry, RetryAfter, Snooze, current, errors
from penstock.client.reading import new_id
from penstock.client.worker import notices
from tests.tasks.working import PATIENCE_S, working, working_as

ONCE = Retry(1)
AT_ONCE = Retry(5, backoff=0, max_backoff=0)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Line:
    sku: str
    count: int


class Order(msgspec.Struct):
    id: int
    lines: list[Line]
    placed_at: datetime
    total: Decimal
    reference: UUID
    raw: bytes
    colour: Colour


ORDER = Order(
    id=17,
    lines=[Line("espresso", 2)],
    placed_at=datetime(2026, 11, 18, 7, tzinfo=UTC),
    total=Decimal("7.50"),
    reference=UUID(int=5),
    raw=b"\x00\xff",
    colour=Colour.RED,
)


async def test_arguments_and_results_keep_their_types(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def echo(order: Order, *, note: str | None = None, at: datetime | None = None) -> tuple[Order, str | None]:
        assert at is None
        return order, note

    async with working(app):
        job = await echo.enqueue(ORDER, note="with milk")
        assert await job.result(PATIENCE_S) == (ORDER, "with milk")


async def test_plain_functions_run_in_threads(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    def where() -> tuple[str, int]:
        return threading.current_thread().name, current().attempt

    async with working(app):
        assert await (await where.enqueue()).result(PATIENCE_S) == ("penstock-task", 1)


async def test_a_plain_wrapper_of_a_coroutine_is_awaited(app: Penstock, name: str) -> None:
    def logged(function: Callable[[int], Awaitable[int]]) -> Callable[[int], Awaitable[int]]:
        @functools.wraps(function)
        def wrapper(n: int) -> Awaitable[int]:
            return function(n)

        return wrapper

    @app.task(name=name, queue=name)
    @logged
    async def double(n: int) -> int:
        return 2 * n

    async with working(app):
        assert await app.job((await double.enqueue(4)).id).result(PATIENCE_S) == 8


async def test_a_direct_call_runs_the_function_here(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def double(n: int) -> int:
        return 2 * n

    assert await double(4) == 8
    with pytest.raises(errors.NoCurrentJob):
        current()


async def test_sync_callers_enqueue_wait_and_cancel(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def double(n: int) -> int:
        return 2 * n

    def calls() -> int:
        cancelled = double.opts(delay=3_600).enqueue_sync(1)
        cancelled.cancel_sync()
        with pytest.raises(errors.JobCancelled):
            cancelled.result_sync(PATIENCE_S)
        outcomes = app.enqueue_many_sync([double.call(1), double.call(2)])
        assert not any(isinstance(one, Exception) for one in outcomes)
        return double.enqueue_sync(21).result_sync(PATIENCE_S)

    async with working(app):
        assert await asyncio.to_thread(calls) == 42


async def test_concurrent_enqueues_share_requests_and_each_gets_its_own_job(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def echo(n: int) -> int:
        return n

    jobs = await asyncio.gather(*(echo.enqueue(n) for n in range(200)))
    assert len({job.id for job in jobs}) == 200
    async with working(app):
        assert await asyncio.gather(*(job.result(PATIENCE_S) for job in jobs)) == list(range(200))


async def test_enqueue_many_answers_for_each(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def echo(n: int) -> int:
        return n

    taken = new_id()
    await app.jobs.enqueue(name, "another", id=taken)
    outcomes = await app.enqueue_many([echo.call(1), echo.opts(id=taken).call(2), echo.call(3)])
    assert [type(one).__name__ for one in outcomes] == ["Job", "JobExists", "Job"]


async def test_options_of_a_call_reach_the_job(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name, priority=2, tags=["a"], timeout="90s", retry=Retry(3, backoff="2s"))
    async def work(n: int) -> None: ...

    in_an_hour = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)  # noqa: TID251
    job = await work.opts(
        run_at=in_an_hour, priority=9, tenant="t", concurrency=("api", 3), unique="u", tags=["b"]
    ).enqueue(1)
    view = await job.view()
    assert (view.priority, view.tenant, view.tags, view.unique_key) == (9, "t", ("b",), "u")
    assert (view.concurrency_key, view.timeout_ms, view.retry.attempts_max) == ("api", 90_000, 3)
    assert (view.due_at_ms, view.state) == (round(in_an_hour.timestamp() * 1_000), "scheduled")
    again = await work.opts(tenant="t", unique="u").enqueue(1)
    assert (again.id, again.duplicate) == (job.id, True)
    newer = await work.opts(tenant="t", unique="u", replace=True, delay="1h").enqueue(2)
    assert newer.replaced == job.id


async def test_the_same_key_is_the_same_job(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work(n: int) -> None: ...

    first = await work.opts(key=name).enqueue(1)
    again = await work.opts(key=name).enqueue(1)
    assert (again.id, first.replayed, again.replayed) == (first.id, False, True)
    with pytest.raises(errors.IdempotencyKeyReused):
        await work.opts(key=name).enqueue(2)


async def test_a_failure_is_tried_again_and_reaches_the_caller_when_attempts_are_used_up(
    app: Penstock, name: str
) -> None:
    seen: list[int] = []
    hooked: list[tuple[str, str]] = []

    @app.on_failure
    def tell(ctx: Context, error: Exception) -> None:
        hooked.append((ctx.id, str(error)))

    @app.task(name=name, queue=name, retry=Retry(3, backoff=0, max_backoff=0))
    async def work() -> None:
        seen.append(current().attempt)
        raise RuntimeError(f"attempt {current().attempt}")

    async with working(app) as notes:
        job = await work.enqueue()
        with pytest.raises(errors.JobDead, match="RuntimeError: attempt 3") as caught:
            await job.result(PATIENCE_S)
        [died] = await notes.wait_for(notices.Died)
    assert seen == [1, 2, 3]
    assert hooked == [(job.id, f"attempt {number}") for number in seen]
    assert caught.value.failure is not None
    assert "raise RuntimeError" in caught.value.failure.details
    assert died.trouble.at.endswith("in work")
    assert [(one.attempt, one.attempts_max) for one in notes.of(notices.Retrying)] == [(1, 3), (2, 3)]


async def test_a_permanent_error_is_not_tried_again(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name, retry=Retry(5, permanent=(ValueError,)))
    async def work() -> None:
        raise ValueError("no such customer")

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(errors.JobDead, match="no such customer"):
            await job.result(PATIENCE_S)
        assert (await job.view()).attempts == 1


async def test_snooze_costs_no_attempt_and_retry_after_is_heeded(app: Penstock, name: str) -> None:
    async def run(verdict: Exception) -> Any:
        @app.task(name=f"{name}-{type(verdict).__name__}", queue=name, retry=AT_ONCE)
        async def work() -> None:
            raise verdict

        async with working_as(app, {name: 1}):
            job = await work.enqueue()
            state = "scheduled" if isinstance(verdict, Snooze) else "retrying"
            async for event in job.events():
                if event.kind in {"job.snoozed", "job.failed"}:
                    break
        view = await job.view()
        assert view.state == state
        return view

    snoozed = await run(Snooze("1h"))
    assert (snoozed.failures, snoozed.losses) == (0, 0)
    retried = await run(RetryAfter(1_800))
    assert retried.failures == 1
    assert retried.due_at_ms - retried.history[-1].ended_at_ms >= 1_800_000


async def test_discard_cancels_the_job(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work() -> None:
        raise Discard("the order is gone")

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(errors.JobCancelled, match="the order is gone"):
            await job.result(PATIENCE_S)


async def test_a_cancelled_job_is_stopped_in_its_task(app: Penstock, name: str) -> None:
    began = asyncio.Event()
    stopped = asyncio.Event()

    @app.task(name=name, queue=name)
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert current().cancelled
            stopped.set()

    await app.queues.put(name, lease_ms=1_000)
    async with working(app):
        job = await work.enqueue()
        async with asyncio.timeout(PATIENCE_S):
            await began.wait()
            await job.cancel()
            await stopped.wait()
        with pytest.raises(errors.JobCancelled):
            await job.result(PATIENCE_S)


async def test_an_attempt_that_takes_too_long_fails(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name, timeout=0.2, retry=ONCE)
    async def work() -> None:
        await asyncio.Event().wait()

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(errors.JobDead, match="timeout"):
            await job.result(PATIENCE_S)


async def test_middlewares_are_one_onion(app: Penstock, name: str) -> None:
    said: list[str] = []

    @app.middleware
    async def outer(ctx: Context, call_next: Next) -> object:
        said.append(f"outer {ctx.task}")
        try:
            return await call_next(ctx)
        finally:
            said.append("outer ends")

    @app.middleware
    async def inner(ctx: Context, call_next: Next) -> object:
        said.append("inner")
        result = await call_next(ctx)
        assert isinstance(result, int)
        return result + 1

    @app.task(name=name, queue=name)
    async def work() -> int:
        said.append("task")
        return 1

    async with working(app):
        assert await (await work.enqueue()).result(PATIENCE_S) == 2
    assert said == [f"outer {name}", "inner", "task", "outer ends"]


async def test_progress_and_events_come_in_order_and_before_the_end(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work() -> None:
        ctx = current()
        for number in range(1, 121):
            await ctx.progress(number, of=120)
        ctx.publish("half", {"way": True})

    async with working(app):
        job = await work.enqueue()
        events = [event async for event in job.events()]
    assert [msgspec.json.decode(event.data)["done"] for event in events if event.kind == "progress"] == list(
        range(1, 121)
    )
    assert [event.kind for event in events][-2:] == ["half", "job.succeeded"]


async def test_a_recorded_step_is_not_run_again(app: Penstock, name: str) -> None:
    charged: list[int] = []
    shipped: list[int] = []

    async def charge(amount: int) -> Line:
        charged.append(amount)
        return Line("paid", amount)

    def ship(paid: Line) -> int:
        shipped.append(paid.count)
        if len(shipped) < 3:
            raise RuntimeError("no truck")
        return len(shipped)

    @app.task(name=name, queue=name, retry=AT_ONCE)
    async def order(amount: int) -> int:
        ctx = current()
        paid = await ctx.step("charge", charge, amount)
        assert paid == Line("paid", amount)
        return await ctx.step("ship", ship, paid)

    async with working(app):
        assert await (await order.enqueue(12)).result(PATIENCE_S) == 3
    assert charged == [12]
    assert shipped == [12, 12, 12]


async def test_steps_of_plain_functions(app: Penstock, name: str) -> None:
    charged: list[int] = []

    def charge(amount: int) -> int:
        charged.append(amount)
        return amount

    @app.task(name=name, queue=name, retry=AT_ONCE)
    def order(amount: int) -> int:
        ctx = current()
        ctx.progress(1, of=2)
        paid = ctx.step_sync("charge", charge, amount)
        if ctx.attempt == 1:
            raise RuntimeError("after the charge")
        return paid

    async with working(app):
        assert await (await order.enqueue(5)).result(PATIENCE_S) == 5
    assert charged == [5]


async def test_batch_tasks_answer_for_each_item(app: Penstock, name: str) -> None:
    sizes: list[int] = []

    @app.batch_task(name=name, queue=name, size=8, linger=1, retry=ONCE)
    async def lengths(texts: list[str]) -> list[int | Exception]:
        sizes.append(len(texts))
        return [len(text) if text else ValueError("empty") for text in texts]

    jobs = [await lengths.enqueue(text) for text in ("a", "bb", "", "cccc", "a", "bb", "ccc", "d")]
    async with working(app):
        assert await jobs[0].result(PATIENCE_S) == 1
        assert await jobs[3].result(PATIENCE_S) == 4
        with pytest.raises(errors.JobDead, match="empty"):
            await jobs[2].result(PATIENCE_S)
    assert max(sizes) > 1
    assert sum(sizes) == 8


async def test_a_slot_forgets_the_context_variables_of_the_job_before(app: Penstock, name: str) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar(name)

    @app.task(name=name, queue=name)
    async def work(n: int) -> int | None:
        before = variable.get(None)
        variable.set(n)
        return before

    async with working_as(app, {name: 1}):
        jobs = [await work.enqueue(n) for n in range(5)]
        assert [await job.result(PATIENCE_S) for job in jobs] == [None] * 5


async def test_a_job_that_is_not_there_is_not_found(app: Penstock) -> None:
    with pytest.raises(errors.JobNotFound):
        await app.job(new_id()).result(1)


async def test_a_result_that_takes_too_long_is_a_timeout_and_the_job_goes_on(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work() -> int:
        return 5

    job = await work.enqueue()
    with pytest.raises(TimeoutError, match=r"is queued and has not ended within 0 seconds\. Does a worker run"):
        await job.result(0)
    async with working(app):
        assert await job.result(PATIENCE_S) == 5


async def test_an_alias_takes_jobs_of_the_old_name(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-new", aliases=[f"{name}-old"], queue=name)
    async def work(n: int) -> int:
        return n

    old = await app.jobs.enqueue(name, f"{name}-old", {"n": 3})
    async with working(app):
        assert await work.job(old.id).result(PATIENCE_S) == 3


async def test_a_worker_leaves_tasks_alone_that_it_does_not_know(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def known(n: int) -> int:
        return n

    unknown = await app.jobs.enqueue(name, f"{name}-unknown")
    async with working(app):
        assert await (await known.enqueue(1)).result(PATIENCE_S) == 1
    assert (await app.jobs.get(unknown.id)).attempts == 0


async def test_a_schedule_is_saved_under_the_name_of_its_task(app: Penstock, name: str) -> None:
    @app.cron("0 3 * * *", zone="Europe/Berlin", unique=True, name=name, queue=name)
    async def nightly() -> None: ...

    async with working(app) as notes:
        await notes.wait_for(notices.Ready)
    found = await app.schedules.get(f"cron:{name}")
    assert (found.cron, found.zone, found.task, found.queue) == ("0 3 * * *", "Europe/Berlin", name, name)
    await app.schedules.delete(found.name)
