"""`with app.testing()`: jobs are run by the parts of a real worker."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Context, Discard, Next, Penstock, Retry, RetryAfter, Snooze, current, errors

NEVER_AGAIN = Retry(1)


def test_a_test_enqueues_runs_and_looks_at_the_result(app: Penstock) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    with app.testing() as t:
        job = double.enqueue_sync(17)
        t.assert_enqueued(double, n=17)
        assert t.run_all() == (1, 0, 0, 0, 0, 0)
        t.assert_not_enqueued(double)
        assert job.result_sync(0) == 34
        assert t.run_all().total == 0


def test_what_tasks_enqueue_is_run_too(app: Penstock) -> None:
    @app.task(name="plain", queue="other")
    def count_down(n: int) -> None:
        if n:
            again.enqueue_sync(n - 1)

    @app.task(name="async")
    async def again(n: int) -> None:
        await count_down.opts(queue=f"queue-{n}").enqueue(n)

    with app.testing() as t:
        again.enqueue_sync(20)
        assert t.run_all().done == 42


def test_jobs_run_one_at_a_time_unless_the_test_says_otherwise(app: Penstock) -> None:
    running: list[int] = []

    @app.task(name="meet")
    async def meet(n: int) -> int:
        running.append(n)
        await asyncio.sleep(0.001)
        together = len(running)
        running.remove(n)
        return together

    @app.task(name="wait")
    async def wait() -> int:
        return await (await meet.enqueue(3)).result(20)

    with app.testing() as t:
        jobs = [meet.enqueue_sync(n) for n in range(3)]
        t.run_all()
        assert [job.result_sync(0) for job in jobs] == [1, 1, 1]
        waiting = wait.enqueue_sync()
        assert t.run_all(concurrency=2).done == 2
        assert waiting.result_sync(0) == 1


def test_unique_jobs_delays_and_cancellation_are_those_of_the_engine(app: Penstock) -> None:
    @app.task(name="sync")
    def sync(shop: int) -> None:
        return

    with app.testing() as t:
        first = sync.opts(unique="shop-1", delay=60).enqueue_sync(1)
        again = sync.opts(unique="shop-1").enqueue_sync(1)
        assert (again.id, again.duplicate) == (first.id, True)
        other = sync.enqueue_sync(2)
        other.cancel_sync()
        assert [job.arguments for job in t.enqueued()] == [{"shop": 1}]
        assert t.run_until_idle().done == 1
        with pytest.raises(errors.JobCancelled):
            other.result_sync(0)


def test_verdicts_of_a_task_count_as_what_they_are(app: Penstock) -> None:
    @app.task(name="decide")
    def decide(verdict: str) -> None:
        if verdict == "snooze" and current().attempt == 1:
            raise Snooze(60)
        if verdict == "discard":
            raise Discard("gone")
        if verdict == "later" and current().failures == 0:
            raise RetryAfter(60, "busy")

    with app.testing() as t:
        for verdict in ("snooze", "discard", "later"):
            decide.enqueue_sync(verdict)
        assert t.run_all(raise_errors=False) == (0, 1, 0, 1, 1, 0)
        assert [job.due_in for job in t.enqueued()] == [60, 60]
        t.clock.advance(minutes=1)
        assert t.run_all().done == 2


def test_a_task_that_takes_too_long_fails_by_its_timeout(app: Penstock) -> None:
    @app.task(name="hang", timeout="100ms", retry=NEVER_AGAIN)
    async def hang() -> None:
        await asyncio.Event().wait()

    with app.testing() as t:
        job = hang.enqueue_sync()
        with pytest.raises(TimeoutError, match=r"more than 0\.1 s"):
            t.run_all()
        with pytest.raises(errors.JobDead, match="timeout"):
            job.result_sync(0)


def test_middleware_hooks_events_and_steps_work_as_in_a_worker(app: Penstock) -> None:
    said: list[str] = []

    @app.middleware
    async def around(ctx: Context, call_next: Next) -> object:
        said.append(f"begin {ctx.attempt}")
        return await call_next(ctx)

    @app.on_failure
    def hook(ctx: Context, error: Exception) -> None:
        said.append(f"failed {error}")

    def charge() -> str:
        said.append("charged")
        return "receipt"

    @app.task(name="pay", retry=Retry(2, backoff=60))
    async def pay() -> str:
        ctx = current()
        receipt = await ctx.step("charge", charge)
        ctx.progress(1, of=2)
        if ctx.attempt == 1:
            raise ValueError("lost")
        return receipt

    with app.testing() as t:
        job = pay.enqueue_sync()
        t.run_until_idle()
        assert job.result_sync(0) == "receipt"
        assert said == ["begin 1", "charged", "failed lost", "begin 2"]
        assert "progress" in [event.kind for event in job.events_sync()]


def test_batch_tasks_get_what_is_there(app: Penstock) -> None:
    sizes: list[int] = []

    @app.batch_task(name="embed", size=4, linger=5, retry=NEVER_AGAIN)
    def embed(texts: list[str]) -> list[int | Exception]:
        sizes.append(len(texts))
        return [len(text) if text else ValueError("empty") for text in texts]

    with app.testing() as t:
        jobs = [embed.enqueue_sync("x" * n) for n in range(6)]
        t.assert_enqueued(embed, "xx")
        with pytest.raises(ValueError, match="empty"):
            t.run_all()
        assert sizes == [4, 2]
        assert [job.result_sync(0) for job in jobs[1:]] == [1, 2, 3, 4, 5]


def test_a_fan_out_ends_in_its_continuation(app: Penstock) -> None:
    @app.task(name="extract")
    async def extract(doc: str, field: int) -> int:
        return field * field

    @app.task(name="assemble")
    def assemble(doc: str, fields: list[int]) -> int:
        return sum(fields)

    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    with app.testing() as t:
        flow = app.fan_out_sync([extract.call("a", n) for n in range(42)], entity="a", then=assemble)
        t.assert_not_enqueued(assemble)
        assert t.run_all().done == 43
        assert flow.result_sync(0) == sum(n * n for n in range(42))
        chain = extract.call("b", 3).then(double).enqueue_sync()
        t.run_all()
        assert chain.result_sync(0) == 18
