"""Bad input on every kind of URL: a clear error at the earliest place, and nothing lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Context, Penstock, Retry, Worker, current, errors
from penstock.client.errors import ArgumentsInvalid, EventInvalid, StepInvalid, TaskInvalid
from penstock.client.worker import notices
from tests.client.peers import ScriptedServer, answer, problem
from tests.tasks.working import PATIENCE_S, working, working_as

AT_ONCE = Retry(3, backoff=0, max_backoff=0)


# -- what is enqueued -----------------------------------------------------------------------------


async def test_arguments_that_do_not_fit_are_never_stored(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work(n: int, *, note: str = "") -> None: ...

    calls: list[tuple[Any, Any]] = [((), {}), (("1",), {}), ((1, 2), {}), ((1,), {"x": 1}), ((object(),), {})]
    unchecked: Any = work
    for args, kwargs in calls:
        for method in (unchecked.enqueue, unchecked.opts(delay=5).enqueue):
            with pytest.raises(ArgumentsInvalid, match=name):
                await method(*args, **kwargs)
        with pytest.raises(ArgumentsInvalid, match=name):
            unchecked.call(*args, **kwargs)
    with pytest.raises(errors.QueueNotFound):  # Not even its queue was made.
        await app.jobs.list(queue=name)


async def test_values_at_the_edge_of_json_reach_the_task_as_they_are(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def echo(it: Any) -> Any:
        return it

    nested: Any = []
    for _ in range(200):
        nested = [nested]
    values = [2**63, 2**70, -(2**63) - 1, 1e300, "\x00", "🦊", {"": [None]}, nested, b"\xff".decode("latin-1")]
    async with working(app):
        jobs = [await echo.enqueue(value) for value in values]
        assert [await job.result(PATIENCE_S) for job in jobs] == values


@pytest.mark.parametrize("size", [1_100_000, 9_000_000])
async def test_a_payload_that_is_too_large_is_refused_alone(app: Penstock, name: str, size: int) -> None:
    @app.task(name=name, queue=name)
    async def work(text: str) -> int:
        return len(text)

    texts = ["x" * (size if number == 3 else 10) for number in range(8)]
    outcomes = await asyncio.gather(*(work.enqueue(text) for text in texts), return_exceptions=True)
    assert [type(one).__name__ for one in outcomes] == ["Job"] * 3 + ["TooLarge"] + ["Job"] * 4
    with pytest.raises(errors.TooLarge, match=r"1048576|larger than"):
        await asyncio.to_thread(work.enqueue_sync, texts[3])
    assert len((await app.jobs.list(queue=name)).jobs) == 7


async def test_a_wrong_option_of_one_call_is_no_fault_of_the_others(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work(n: int) -> int:
        return n

    calls = [work.opts(delay="400d") if number == 2 else work for number in range(5)]
    outcomes = await asyncio.gather(*(call.enqueue(1) for call in calls), return_exceptions=True)
    assert [type(one).__name__ for one in outcomes] == ["Job", "Job", "Invalid", "Job", "Job"]
    assert str(outcomes[2]).startswith("delay_ms: Expected `int` <= ")


async def test_only_calls_are_enqueued_together(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work(n: int) -> int:
        return n

    task: Any = work
    for given in ([task.call(1), task], [task.call(1), 5]):
        with pytest.raises(TaskInvalid, match=r"enqueue_many takes calls, such as task.call"):
            await app.enqueue_many(given)
    with pytest.raises(TaskInvalid, match="enqueue_many takes a list of calls"):
        await app.enqueue_many(task.call(1))
    other: Any = Penstock("memory:").task(name=name, queue=name)(work.function)
    with pytest.raises(TaskInvalid, match=r"belongs to another app. Call enqueue_many of that one."):
        await app.enqueue_many([work.call(1), other.call(2)])
    with pytest.raises(TaskInvalid, match=r"belongs to another app. Call fan_out of that one."):
        await app.fan_out([work.call(1), other.call(2)], then=task)
    with pytest.raises(errors.QueueNotFound):  # Not even its queue was made.
        await app.jobs.list(queue=name)


# -- fan-out --------------------------------------------------------------------------------------


async def test_a_fan_out_of_nothing_runs_what_follows_with_an_empty_list(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def count(results: list[int]) -> int:
        return len(results)

    async with working(app):
        assert await (await app.fan_out([], then=count)).result(PATIENCE_S) == 0


async def test_what_cannot_follow_is_refused_before_anything_is_stored(app: Penstock, name: str) -> None:
    @app.task(name=f"{name}-part", queue=name)
    async def part(n: int) -> int:
        return n

    @app.task(name=f"{name}-nothing", queue=name)
    async def nothing() -> None: ...

    @app.task(name=f"{name}-more", queue=name)
    async def more(entity: int, results: list[int], also: int) -> None: ...

    @app.batch_task(name=f"{name}-batch", queue=name)
    async def batch(items: list[int]) -> list[int]:
        return items

    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"then": nothing}, TaskInvalid, "needs a parameter for their results"),
        ({"then": more, "entity": 1}, ArgumentsInvalid, "needs an argument also, which nobody gives it"),
        ({"then": more, "entity": "x"}, ArgumentsInvalid, "Expected `int`, got `str`"),
        ({"then": more, "entity": object()}, ArgumentsInvalid, "a value of the type object cannot be written"),
        ({"then": batch}, TaskInvalid, "cannot follow others: its worker collects single items"),
        ({"then": batch.opts(priority=1)}, TaskInvalid, "cannot follow others"),
        ({"then": part.call(1)}, TaskInvalid, "has to be a task, without its arguments"),
        ({"then": print}, TaskInvalid, "has to be a task"),
        ({"then": part, "on_error": "ignore"}, ValueError, 'on_error is "fail" or "collect"'),
        ({"then": part, "expires": -1}, ValueError, "expires cannot be negative"),
    ]
    fan_out: Any = app.fan_out
    for given, error, said in cases:
        with pytest.raises(error, match=said):
            await fan_out([part.call(1)], **given)
    with pytest.raises(TaskInvalid, match=r"fan_out takes calls, such as task.call"):
        await fan_out([part], then=part)
    unchecked: Any = part.call(1)
    for follower in (nothing, batch, print):
        with pytest.raises(TaskInvalid):
            unchecked.then(follower)
    with pytest.raises(errors.QueueNotFound):  # Not even its queue was made.
        await app.jobs.list(queue=name)


# -- results and events ---------------------------------------------------------------------------


async def test_a_bad_result_makes_its_job_dead_and_the_worker_goes_on(app: Penstock, name: str) -> None:
    returned: dict[str, Any] = {
        "text": "five",
        "object": object(),
        "large": "x" * 1_100_000,
        "huge": "x" * 9_000_000,
        "nan": float("nan"),
    }

    @app.task(name=name, queue=name, retry=AT_ONCE)
    async def number(of: str) -> int:
        found: int = returned.get(of, 5)
        return found

    @app.task(name=f"{name}-any", queue=name, retry=AT_ONCE)
    def anything(of: str) -> Any:
        return returned.get(of, 5)

    async def ended(task: Any, of: str) -> tuple[str, str, int]:
        job = await task.enqueue(of)
        with pytest.raises(errors.JobDead) as caught:
            await job.result(PATIENCE_S)
        assert caught.value.failure is not None
        return caught.value.failure.kind, caught.value.failure.message, (await job.view()).attempts

    async with working(app):
        good = [await number.enqueue("fine") for _ in range(5)]
        kind, said, attempts = await ended(number, "text")
        assert (kind, attempts) == ("ResultInvalid", 1)
        assert "Expected `int`, got `str`" in said
        assert (await ended(anything, "object"))[0] == "ResultInvalid"
        assert (await ended(anything, "nan"))[0] == "ResultInvalid"
        for size in ("large", "huge"):
            kind, said, attempts = await ended(anything, size)
            assert (kind, attempts) == ("ResultTooLarge", 1)
            assert "bytes" in said
        assert [await job.result(PATIENCE_S) for job in good] == [5] * 5
        assert await (await anything.enqueue("fine")).result(PATIENCE_S) == 5


async def test_a_payload_that_does_not_fit_makes_the_job_dead_at_once(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name, retry=AT_ONCE)
    async def work(n: int) -> int:
        return n

    @app.batch_task(name=f"{name}-batch", queue=name, size=2, linger=0)
    async def batch(items: list[int]) -> list[int]:
        return items

    stored = [await app.jobs.enqueue(name, task, {"n": "x", "items": 1}) for task in (name, f"{name}-batch")]
    async with working(app):
        for accepted in stored:
            with pytest.raises(errors.JobDead, match="ArgumentsInvalid"):
                await work.job(accepted.id).result(PATIENCE_S)
            assert (await app.jobs.get(accepted.id)).attempts == 1


async def test_an_event_that_cannot_be_sent_is_refused_where_it_is_published(app: Penstock, name: str) -> None:
    said: list[str] = []

    @app.task(name=name, queue=name)
    async def work() -> str:
        ctx: Any = current()
        bad: list[Callable[[], object]] = [
            lambda: ctx.publish("kind", object()),
            lambda: ctx.publish("kind", float("nan")),
            lambda: ctx.publish("kind", "x" * 65_537),
            lambda: ctx.publish("", 1),
            lambda: ctx.publish("x" * 201, 1),
            lambda: ctx.publish(5),
            lambda: ctx.publish("step", 1),
            lambda: ctx.publish("job.succeeded", 1),
            lambda: ctx.progress("three"),
            lambda: ctx.progress(float("inf")),
        ]
        for publish in bad:
            with pytest.raises(EventInvalid) as caught:
                publish()
            said.append(str(caught.value))
        ctx.publish("largest", "x" * 65_534)
        return "fine"

    async with working(app):
        job = await work.enqueue()
        kinds = [event.kind async for event in job.events()]
        assert await job.result(PATIENCE_S) == "fine"
    assert kinds == ["largest", "job.succeeded"]
    assert "The data of event 'kind' has 65,539 bytes, and 65,536 at most are allowed." in said


async def test_a_bad_step_is_not_run_again(app: Penstock, name: str) -> None:
    ran: list[str] = []

    def effect(returned: Any) -> Any:
        ran.append(type(returned).__name__)
        return returned

    @app.task(name=name, queue=name, retry=AT_ONCE)
    async def work(which: str) -> None:
        ctx: Any = current()
        match which:
            case "large":
                await ctx.step("large", effect, "x" * 65_536)
            case "object":
                await ctx.step("object", effect, object())
            case "unnamed":
                await ctx.step("", effect, 1)
            case "long":
                await ctx.step("x" * 151, effect, 1)
            case _:
                await ctx.step(effect, 1)

    async with working(app):
        kinds = {}
        for which in ("large", "object", "unnamed", "long", "nothing"):
            job = await work.enqueue(which)
            with pytest.raises(errors.JobDead) as caught:
                await job.result(PATIENCE_S)
            assert caught.value.failure is not None
            kinds[which] = caught.value.failure.kind
            assert (await job.view()).attempts == 1
    bad = StepInvalid.__name__
    assert list(kinds.values()) == ["ResultTooLarge", "ResultInvalid", bad, bad, bad]
    assert ran == ["str", "object"]


async def test_failure_hooks_may_be_async_and_may_fail(app: Penstock, name: str) -> None:
    heard: list[str] = []

    @app.on_failure
    def broken(ctx: Context, error: Exception) -> None:
        raise RuntimeError("the hook is broken")

    @app.on_failure
    async def hook(ctx: Context, error: Exception) -> None:
        await asyncio.sleep(0)
        heard.append(str(error))

    @app.task(name=name, queue=name, retry=Retry(1))
    async def work() -> None:
        raise ValueError("no")

    async with working(app):
        with pytest.raises(errors.JobDead, match="ValueError: no"):
            await (await work.enqueue()).result(PATIENCE_S)
    assert heard == ["no"]


async def test_a_worker_says_that_a_queue_has_no_tasks(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work() -> int:
        return 1

    async with working_as(app, {f"{name}-other": 1}) as notes:
        [warned] = await notes.wait_for(notices.Warned)
        assert warned.message.startswith(f"No task is declared in queue {name}-other.")
        assert await (await work.opts(queue=f"{name}-other").enqueue()).result(PATIENCE_S) == 1


# -- servers --------------------------------------------------------------------------------------


def declared(url: str) -> tuple[Penstock, Any]:
    app = Penstock(url, timeout=1, connect_timeout=0.5)

    @app.task(name="work", queue="work")
    async def work(n: int = 1) -> int:
        return n

    return app, work


async def test_a_server_that_is_away_is_an_error_of_the_caller_and_a_wait_of_the_worker() -> None:
    with ScriptedServer(lambda *_: None) as closed:
        away = closed.url
    app, work = declared(away)
    async with app:
        for call in (work.enqueue, lambda: asyncio.to_thread(work.enqueue_sync)):
            began = time.monotonic()
            with pytest.raises(errors.ConnectionFailed, match=away.removeprefix("http://")):
                await call()
            assert time.monotonic() - began < PATIENCE_S
        async with working(app) as notes:
            [lost] = await notes.wait_for(notices.ConnectionLost)
            assert (lost.address, lost.running) == (away, 0)
        assert notes.of(notices.Ready) == []


async def test_a_wrong_token_is_refused_to_callers_and_at_the_start_of_a_worker() -> None:
    with ScriptedServer(lambda *_: problem("not-authenticated", "401 Unauthorized")) as server:
        app, work = declared(server.url)
        async with app:
            with pytest.raises(errors.NotAuthenticated):
                await work.enqueue()
            with pytest.raises(errors.NotAuthenticated):
                await asyncio.to_thread(work.enqueue_sync)
            with pytest.raises(errors.NotAuthenticated):
                await Worker(app).run(signals=False)


UNKNOWN = (
    b'{"type":"urn:penstock:problem:invalid","title":"Invalid","status":422,'
    b'"detail":"Object contains unknown field `expires_in_ms`."}'
)


async def test_an_older_server_is_named_as_the_reason() -> None:
    def old(request: bytes, _: int) -> bytes:
        line = request.partition(b"\r\n")[0]
        if b"/v1/jobs/batch" in line:
            return answer(b'{"results":[{"status":422,"problem":%b}]}' % UNKNOWN)
        if b"/v1/jobs" in line:
            return answer(UNKNOWN, "422 Unprocessable Content")
        return problem("not-found", "404 Not Found")

    with ScriptedServer(old) as server:
        app, work = declared(server.url)
        said = rf"The server at {server.url} is older than this client and does not know `expires_in_ms`"
        async with app:
            with pytest.raises(errors.ServerTooOld, match=said):
                await work.opts(expires="1h").enqueue()
            with pytest.raises(errors.ServerTooOld, match=said):
                await asyncio.to_thread(work.opts(expires="1h").enqueue_sync)
            [outcome] = await app.enqueue_many([work.opts(expires="1h").call()])
            assert isinstance(outcome, errors.ServerTooOld)
            with pytest.raises(errors.ServerTooOld, match="does not know fan_out"):
                await app.fan_out([work.call()], then=work)
            with pytest.raises(errors.ServerTooOld, match="Upgrade the server first"):
                await Worker(app).run(signals=False)
