"""Every verb has one effect although its first answer is lost after the commit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import NewJob, Penstock
from penstock.client import calls
from penstock.client.verbs.caller import Caller
from penstock.client.verbs.face import AsyncFace
from tests.client.faces import face_of
from tests.end_to_end.cutting_proxy import Cut, CuttingProxy
from tests.support.campaigns import campaign, trials


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BACKOFF_S", 0.001)


@pytest.fixture(params=["sqlite_server", "postgres_node"])
def proxy(request: pytest.FixtureRequest) -> Iterator[CuttingProxy]:
    with CuttingProxy(request.getfixturevalue(request.param).url) as running:
        yield running


class Losing:
    """A client whose next answers can be lost."""

    def __init__(self, proxy: CuttingProxy, face: Any, direct: Any) -> None:
        self._proxy = proxy
        self.face = face
        self.direct = direct
        """The same without the proxy, which passes on whole answers only, and so no streams."""

    async def lose(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call whose first two answers are lost, and return the third."""
        before = len(self._proxy.cut_answers)
        self._proxy.cut_next(Cut.CLOSE, Cut.RESET)
        made = await call()
        assert len(self._proxy.cut_answers) == before + 2
        return made


@pytest.fixture(params=["async", "sync"])
async def losing(request: pytest.FixtureRequest, proxy: CuttingProxy) -> AsyncIterator[Losing]:
    async with Penstock(proxy.url, timeout=20) as app, Penstock(proxy.server_url, timeout=20) as direct:
        yield Losing(proxy, face_of(app, request.param), face_of(direct, request.param))


async def _running(app: Any, name: str) -> Any:
    await app.jobs.enqueue(name, "greet")
    [offer] = (await app.work.dequeue([name], wait=10)).offers
    await app.work.accept(offer.token)
    return offer


async def test_enqueue(losing: Losing, name: str) -> None:
    app = losing.face
    stored = await losing.lose(lambda: app.jobs.enqueue(name, "greet", {"to": "ada"}))
    assert stored.replayed
    assert [job.id for job in (await app.jobs.list(queue=name)).jobs] == [stored.id]


async def test_enqueue_many(losing: Losing, name: str) -> None:
    app = losing.face
    results = await losing.lose(lambda: app.jobs.enqueue_many(NewJob(queue=name, task="greet") for _ in range(3)))
    assert [entry.status for entry in results] == [200, 200, 200]
    listed = {job.id for job in (await app.jobs.list(queue=name)).jobs}
    assert listed == {entry.job.id for entry in results}
    assert len(listed) == 3


async def test_dequeue(losing: Losing, name: str) -> None:
    app = losing.face
    first = await app.jobs.enqueue(name, "greet")
    second = await app.jobs.enqueue(name, "greet")
    [offer] = (await losing.lose(lambda: app.work.dequeue([name], wait=5))).offers
    assert offer.id == first.id
    assert (await app.work.accept(offer.token)).state == "running"
    [offer] = (await app.work.dequeue([name])).offers
    assert offer.id == second.id


async def test_reports(losing: Losing, name: str) -> None:
    app = losing.face
    stored = await app.jobs.enqueue(name, "greet")
    [offer] = (await app.work.dequeue([name], wait=10)).offers
    assert (await losing.lose(lambda: app.work.accept(offer.token))).attempt == 1
    assert (await losing.lose(lambda: app.work.heartbeat(offer.token))).state == "running"
    assert (await losing.lose(lambda: app.work.complete(offer.token, 1))).state == "succeeded"
    job = await app.jobs.get(stored.id)
    assert (job.state, job.attempts) == ("succeeded", 1)


async def test_fail_and_retry(losing: Losing, name: str) -> None:
    app = losing.face
    offer = await _running(app, name)
    assert (await losing.lose(lambda: app.work.fail(offer.token, "Timeout", permanent=True))).state == "dead"
    assert (await app.jobs.get(offer.id)).failures == 1
    assert (await losing.lose(lambda: app.jobs.retry(offer.id))).state == "queued"
    kinds = [event.kind for event in (await app.jobs.events(offer.id)).events]
    assert kinds.count("job.retried") == 1


async def test_release_and_snooze(losing: Losing, name: str) -> None:
    app = losing.face
    offer = await _running(app, name)
    released = await losing.lose(lambda: app.work.release(offer.token))
    assert released is None or released.state == "queued"
    [offer] = (await app.work.dequeue([name], wait=10)).offers
    await app.work.accept(offer.token)
    assert (await losing.lose(lambda: app.work.snooze(offer.token, 60_000))).state == "scheduled"
    assert (await app.jobs.get(offer.id)).state == "scheduled"


async def test_an_offer_is_released_once(losing: Losing, name: str) -> None:
    app = losing.face
    await app.jobs.enqueue(name, "greet")
    [offer] = (await app.work.dequeue([name], wait=10)).offers
    await losing.lose(lambda: app.work.release(offer.token))
    [offer] = (await app.work.dequeue([name], wait=10)).offers
    [entry] = await losing.lose(lambda: app.work.report([{"do": "release", "token": offer.token}]))
    assert entry.status == 200
    assert (await app.jobs.get(offer.id)).state == "queued"


async def test_a_result_that_looks_like_a_release_is_no_release(losing: Losing, name: str) -> None:
    app = losing.face
    offer = await _running(app, name)
    await app.work.release(offer.token)
    late = {"do": "complete", "token": offer.token, "result": {"do": "release"}}
    [entry] = await losing.lose(lambda: app.work.report([late]))
    assert entry.status == 409


async def test_publish(losing: Losing, name: str) -> None:
    app = losing.face
    offer = await _running(app, name)
    await losing.lose(lambda: app.work.publish(offer.id, offer.token, "progress", 1))
    kinds = [event.kind for event in (await app.jobs.events(offer.id)).events]
    assert kinds.count("progress") == 1


async def test_publish_in_a_batch(losing: Losing, name: str) -> None:
    app = losing.face
    offer = await _running(app, name)
    events = [{"kind": "progress", "data": n} for n in range(3)]
    batch = [{"do": "publish", "token": offer.token, "events": events}, {"do": "complete", "token": offer.token}]
    entries = await losing.lose(lambda: app.work.report(batch))
    assert [entry.status for entry in entries] == [200, 200]
    kinds = [event.kind for event in (await app.jobs.events(offer.id)).events]
    assert kinds == ["progress"] * 3 + ["job.succeeded"]


async def test_cancel(losing: Losing, name: str) -> None:
    app = losing.face
    stored = await app.jobs.enqueue(name, "greet")
    assert (await losing.lose(lambda: app.jobs.cancel(stored.id))).state == "cancelled"
    kinds = [event.kind for event in (await app.jobs.events(stored.id)).events]
    assert kinds.count("job.cancelled") == 1


async def test_purge_and_requeue(losing: Losing, name: str) -> None:
    app = losing.face
    offer = await _running(app, name)
    await app.work.fail(offer.token, "Timeout", permanent=True)
    purge = await losing.lose(lambda: app.queues.purge(name))
    requeue = await losing.lose(lambda: app.queues.requeue_dead(name, rate=1))
    operations = (await app.operations.list(name)).operations
    assert [operation.id for operation in operations] == [requeue.id, purge.id]
    await losing.lose(lambda: app.operations.cancel(requeue.id))


async def test_queues(losing: Losing, name: str) -> None:
    app = losing.face
    made = await losing.lose(lambda: app.queues.create(name, depth_max=5))
    changed = await losing.lose(lambda: app.queues.change(name, revision=made.revision, lease_ms=5_000))
    assert changed.revision == made.revision + 1
    assert (await losing.lose(lambda: app.queues.pause(name))).paused
    assert not (await losing.lose(lambda: app.queues.resume(name))).paused
    assert (await losing.lose(lambda: app.queues.put(name, depth_max=6))).settings.depth_max == 6
    assert await losing.lose(lambda: app.queues.delete(name)) is None


async def test_schedules(losing: Losing, name: str) -> None:
    app = losing.face
    saved = await losing.lose(lambda: app.schedules.put(name, name, "digest", interval_ms=60_000))
    assert (await app.schedules.get(name)).next_at_ms == saved.next_at_ms
    assert await losing.lose(lambda: app.schedules.delete(name)) is None


async def test_gathers(losing: Losing, name: str) -> None:
    app = losing.face
    jobs = [NewJob(queue=name, task="part")] * 2
    opened = await losing.lose(lambda: app.gathers.create(NewJob(queue=name, task="whole"), jobs, seal=False))
    added = await losing.lose(lambda: app.gathers.add(opened.gather.id, 2, jobs, seal=True))
    assert (added.gather.total, added.gather.sealed) == (4, True)
    assert len((await app.jobs.list(queue=name)).jobs) == 4
    assert (await losing.lose(lambda: app.gathers.get(opened.gather.id))).total == 4
    assert len((await losing.lose(lambda: app.gathers.results(opened.gather.id))).results) == 4
    assert (await losing.lose(lambda: app.gathers.cancel(opened.gather.id))).state == "cancelled"


async def test_an_offer_of_a_stream(losing: Losing, name: str) -> None:
    app = losing.direct
    first = await app.jobs.enqueue(name, "greet")
    await app.jobs.enqueue(name, "greet")
    async with app.work.stream([name], request_id=name) as stream:
        assert (await _first_offer(stream)).id == first.id
    # The offer was lost with its connection.
    async with app.work.stream([name], request_id=name) as stream:
        offer = await _first_offer(stream)
        assert offer.id == first.id
        assert (await app.work.accept(offer.token)).attempt == 1


async def _first_offer(stream: Any) -> Any:
    async for line in stream:
        if line.offer is not None:
            return line.offer
    raise AssertionError("The stream has ended.")


async def test_credit(losing: Losing, name: str) -> None:
    async with losing.direct.work.stream([name]) as stream:
        await anext(aiter(stream))
        app = losing.face.work.stream([name])
        getattr(app, "_face", app).name = stream.name
        assert (await losing.lose(lambda: app.add_credit(2))).credit == 3
        assert (await app.add_credit(0)).credit == 3


async def test_reads_of_jobs(losing: Losing, name: str) -> None:
    app = losing.face
    stored = await app.jobs.enqueue(name, "greet")
    assert (await losing.lose(lambda: app.jobs.get(stored.id))).id == stored.id
    assert (await losing.lose(lambda: app.jobs.result(stored.id, wait=0.2))).state == "queued"
    assert [job.id for job in (await losing.lose(lambda: app.jobs.list(queue=name))).jobs] == [stored.id]
    assert (await losing.lose(lambda: app.jobs.events(stored.id))).state == "queued"
    await app.jobs.cancel(stored.id)
    events = await losing.lose(lambda: _all(app.jobs.follow(stored.id)))
    assert [event.kind for event in events] == ["job.cancelled"]
    assert (await losing.lose(lambda: app.jobs.dead(queue=name))).jobs == []


async def test_reads_of_the_rest(losing: Losing, name: str) -> None:
    app = losing.face
    await app.queues.put(name)
    purge = await app.queues.purge(name)
    await app.schedules.put(name, name, "digest", interval_ms=60_000)
    await app.work.dequeue([name], worker=name)
    assert (await losing.lose(lambda: app.queues.get(name))).depth == 0
    assert name in [queue.name for queue in (await losing.lose(lambda: app.queues.list(limit=500))).queues]
    assert (await losing.lose(lambda: app.queues.dead_groups(name))).groups == []
    assert (await losing.lose(lambda: app.queues.count_dead(name))).matching == 0
    assert (await losing.lose(lambda: app.queues.count_purge(name))).matching == 0
    assert (await losing.lose(lambda: app.schedules.get(name))).name == name
    listed = (await losing.lose(lambda: app.schedules.list(limit=500))).schedules
    assert name in [schedule.name for schedule in listed]
    assert (await losing.lose(lambda: app.operations.get(purge.id))).id == purge.id
    assert len((await losing.lose(lambda: app.operations.list(name))).operations) == 1
    assert [worker.name for worker in (await losing.lose(lambda: app.workers.list(queue=name))).workers] == [name]


async def _all(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def test_every_verb_is_repeated_here() -> None:
    face = AsyncFace(Caller(lambda: None, 0))  # type: ignore[arg-type,return-value]
    verbs = {f"{part}.{verb}" for part in vars(face) for verb in dir(getattr(face, part)) if not verb.startswith("_")}
    assert {"jobs.enqueue", "workers.list"} < verbs
    lost = re.findall(r"lose\(\s*lambda: (?:_all\()?app\.(\w+\.\w+)\(", Path(__file__).read_text())
    through = {"jobs.enqueue_new", "work.report_written"}  # What `enqueue` and `report` go through.
    assert verbs - set(lost) == {"work.stream", *through}, "of a stream there is a test of its own"


@campaign
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_as_many_jobs_as_calls_although_their_answers_are_lost(
    proxy: CuttingProxy, name: str, record_property: Callable[[str, object], None]
) -> None:
    count, callers = trials(1_000), 4
    async with Penstock(proxy.url, timeout=60) as app:
        numbers = iter(range(count))

        def cut_one() -> Iterator[int]:
            for number in numbers:
                proxy.cut_next(Cut.CLOSE if number % 2 else Cut.RESET)
                yield number

        def in_a_thread() -> list[str]:
            return [app.sync.jobs.enqueue(name, "greet", number).id for number in cut_one()]

        async def on_the_loop() -> list[str]:
            return [(await app.jobs.enqueue(name, "greet", number)).id for number in cut_one()]

        each = await asyncio.gather(
            *(on_the_loop() for _ in range(callers)), *(asyncio.to_thread(in_a_thread) for _ in range(callers))
        )
        acknowledged = [job_id for ids in each for job_id in ids]
        stored = (await app.queues.get(name)).counts["queued"]
    assert len(set(acknowledged)) == len(acknowledged) == count
    assert stored == count
    assert len(proxy.cut_answers) == count
    record_property(
        "evidence", f"{len(proxy.cut_answers)} answers to {count} enqueues cut after the commit: {stored} jobs"
    )
