"""Every verb, by async and by sync methods, on every kind of URL."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Continuation, NewJob, errors, value_of
from penstock.client.reading import new_id


async def _running(app: Any, name: str, **options: Any) -> Any:
    """Enqueue a job and accept it; return its offer."""
    await app.jobs.enqueue(name, "greet", {"to": "ada"}, **options)
    [offer] = (await app.work.dequeue([name], wait=10, worker="w")).offers
    await app.work.accept(offer.token)
    return offer


async def test_a_job_is_enqueued_shown_and_listed(app: Any, name: str) -> None:
    stored = await app.jobs.enqueue(name, "greet", {"to": "ada"}, priority=7, tags=["nightly"], delay_ms=60_000)
    assert (stored.queue, stored.state, stored.replayed) == (name, "scheduled", False)
    job = await app.jobs.get(stored.id)
    assert (job.task, job.priority, job.tags, value_of(job.payload)) == ("greet", 7, ("nightly",), {"to": "ada"})
    page = await app.jobs.list(queue=name, states=["scheduled", "queued"], tag="nightly")
    assert [job.id for job in page.jobs] == [stored.id]
    assert page.cursor is None


async def test_ids_are_made_by_the_client_in_the_order_of_time(app: Any, name: str) -> None:
    ids = [(await app.jobs.enqueue(name, "greet")).id for _ in range(3)]
    assert ids == sorted(ids)
    assert {job_id[14] for job_id in ids} == {"7"}


async def test_many_jobs_are_enqueued_in_slices(app: Any, name: str) -> None:
    results = await app.jobs.enqueue_many(NewJob(queue=name, task="greet", payload=n) for n in range(501))
    assert [entry.status for entry in results] == [202] * 501
    assert len({entry.job.id for entry in results}) == 501
    assert (await app.queues.get(name)).depth == 501


async def test_a_job_may_expire_and_have_a_retention_and_a_trace(app: Any, name: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    options: dict[str, Any] = {"expires_in_ms": 60_000, "retention_ms": 600_000}
    own: dict[str, Any] = {"traceparent": trace, "correlation_id": "of-ada"}
    single = await app.jobs.enqueue(name, "greet", **options, **own)
    [entry] = await app.jobs.enqueue_many([NewJob(queue=name, task="greet", **options, **own)])
    for job_id in (single.id, entry.job.id):
        job = await app.jobs.get(job_id)
        assert job.expires_at_ms == job.enqueued_at_ms + 60_000
        assert (job.retention_ms, job.traceparent, job.correlation_id) == (600_000, trace, "of-ada")
    assert (await app.schedules.put(name, name, "greet", interval_ms=60_000, paused=True, **options)).paused


async def test_a_job_that_expired_says_so(app: Any, name: str) -> None:
    stored = await app.jobs.enqueue(name, "greet", expires_in_ms=1)
    while (found := await app.jobs.result(stored.id)).state != "cancelled":
        # Where no server does the upkeep, the next worker who asks gives effect to it.
        await app.work.dequeue([name])
    assert found.failure.kind == "Expired"


async def test_each_of_many_jobs_is_judged_by_itself(app: Any, name: str) -> None:
    jobs = [NewJob(queue=name, task="greet"), NewJob(queue=name, task=""), NewJob(queue=name, task="greet")]
    results = await app.jobs.enqueue_many(jobs)
    assert [entry.status for entry in results] == [202, 422, 202]
    assert results[1].problem.field == "jobs[1].task"


async def test_the_id_of_another_job_is_refused(app: Any, name: str) -> None:
    stored = await app.jobs.enqueue(name, "greet", 1)
    again = await app.jobs.enqueue(name, "greet", 1, id=stored.id)
    assert (again.id, again.replayed) == (stored.id, True)
    with pytest.raises(errors.JobExists):
        await app.jobs.enqueue(name, "greet", 2, id=stored.id)


async def test_a_job_is_worked_on_and_its_result_awaited(app: Any, name: str) -> None:
    offer = await _running(app, name)
    assert (offer.task, value_of(offer.payload), offer.attempt) == ("greet", {"to": "ada"}, 1)
    assert (await app.work.heartbeat(offer.token)).state == "running"
    assert (await app.jobs.result(offer.id)).state == "running"
    assert (await app.work.complete(offer.token, {"sent": True})).state == "succeeded"
    found = await app.jobs.result(offer.id, wait=10)
    assert (found.state, value_of(found.result)) == ("succeeded", {"sent": True})


async def test_a_wait_for_a_result_ends_without_one(app: Any, name: str) -> None:
    stored = await app.jobs.enqueue(name, "greet")
    assert (await app.jobs.result(stored.id, wait=0.05)).state == "queued"


async def test_a_failed_job_dies_is_grouped_and_is_retried(app: Any, name: str) -> None:
    offer = await _running(app, name)
    report = await app.work.fail(offer.token, "Timeout", "too slow", permanent=True)
    assert report.state == "dead"
    [dead] = (await app.jobs.dead(queue=name)).jobs
    assert (dead.id, dead.failure.kind) == (offer.id, "Timeout")
    assert offer.id in [job.id for job in (await app.jobs.dead(failure_kind="Timeout", limit=500)).jobs]
    [group] = (await app.queues.dead_groups(name)).groups
    assert (group.task, group.kind, group.count) == ("greet", "Timeout", 1)
    assert (await app.jobs.retry(offer.id)).state == "queued"


async def test_a_job_is_released_and_snoozed_at_no_cost(app: Any, name: str) -> None:
    offer = await _running(app, name)
    assert (await app.work.release(offer.token)).state == "queued"
    [offer] = (await app.work.dequeue([name], wait=10)).offers
    await app.work.accept(offer.token)
    assert (await app.work.snooze(offer.token, 60_000)).state == "scheduled"
    assert (await app.jobs.get(offer.id)).failures == 0


async def test_reports_are_made_together(app: Any, name: str) -> None:
    await app.jobs.enqueue_many([NewJob(queue=name, task="greet")] * 2)
    offers = (await app.work.dequeue([name], count=2, wait=10)).offers
    results = await app.work.report([{"do": "accept", "token": offer.token} for offer in offers])
    assert [entry.report.state for entry in results] == ["running", "running"]
    results = await app.work.report(
        [{"do": "complete", "token": offers[0].token, "result": 1}, {"do": "heartbeat", "token": "nonsense"}]
    )
    assert [entry.status for entry in results] == [200, 404]


async def test_events_of_several_jobs_are_published_together(app: Any, name: str) -> None:
    first, second = await _running(app, name), await _running(app, name)
    results = await app.work.report(
        [
            {"do": "publish", "token": first.token, "events": [{"kind": "line", "data": n} for n in range(3)]},
            {"do": "complete", "token": first.token},
            {"do": "publish", "token": second.token, "events": [{"kind": "line", "id": "l-1"}]},
            {"do": "publish", "token": first.token, "events": [{"kind": "line"}]},
        ]
    )
    assert [entry.status for entry in results] == [200, 200, 200, 409]
    events = (await app.jobs.events(first.id)).events
    assert [event.kind for event in events] == ["line"] * 3 + ["job.succeeded"]
    assert [value_of(event.data) for event in events[:3]] == [0, 1, 2]
    assert len((await app.jobs.events(second.id)).events) == 1


async def test_a_lease_that_is_over_is_lost(app: Any, name: str) -> None:
    offer = await _running(app, name)
    await app.work.release(offer.token)
    with pytest.raises(errors.LeaseLost):
        await app.work.complete(offer.token)
    with pytest.raises(errors.LeaseNotFound):
        await app.work.heartbeat("nonsense")


async def test_a_job_is_cancelled(app: Any, name: str) -> None:
    stored = await app.jobs.enqueue(name, "greet")
    assert (await app.jobs.cancel(stored.id)).state == "cancelled"
    offer = await _running(app, name)
    assert (await app.jobs.cancel(offer.id)).cancel_requested
    assert (await app.work.heartbeat(offer.token)).cancel


async def test_events_are_published_and_followed(app: Any, name: str) -> None:
    offer = await _running(app, name)
    published = await app.work.publish(offer.id, offer.token, "progress", {"percent": 40})
    assert (published.kind, value_of(published.data)) == ("progress", {"percent": 40})
    await app.work.complete(offer.token)
    events = [event async for event in app.jobs.follow(offer.id)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert "progress" in [event.kind for event in events]
    assert [event.seq async for event in app.jobs.follow(offer.id, after=2)] == [event.seq for event in events[2:]]


async def test_events_are_listed_without_following(app: Any, name: str) -> None:
    offer = await _running(app, name)
    await app.work.publish(offer.id, offer.token, "progress", 1)
    page = await app.jobs.events(offer.id, kinds=["progress"])
    assert [(event.kind, value_of(event.data)) for event in page.events] == [("progress", 1)]
    assert page.state == "running"


async def test_offers_are_streamed(app: Any, name: str) -> None:
    stored = await app.jobs.enqueue(name, "greet", 1)
    async with app.work.stream([name], credit=2, worker="w") as stream:
        lines = aiter(stream)
        assert (await anext(lines)).stream is not None
        offer = (await anext(lines)).offer
        assert offer.id == stored.id
        assert (await stream.add_credit(1)).credit == 3
        await app.work.accept(offer.token)
        await app.work.complete(offer.token)
    assert (await app.jobs.result(stored.id, wait=10)).state == "succeeded"


async def test_only_known_tasks_are_offered(app: Any, name: str) -> None:
    await app.jobs.enqueue(name, "unknown")
    stored = await app.jobs.enqueue(name, "known")
    offers = (await app.work.dequeue([name], count=2, tasks=["known"], wait=10)).offers
    assert [offer.id for offer in offers] == [stored.id]


async def test_queues_are_made_changed_and_deleted(app: Any, name: str) -> None:
    made = await app.queues.create(name, depth_max=5)
    assert (made.name, made.settings.depth_max) == (name, 5)
    with pytest.raises(errors.QueueExists):
        await app.queues.create(name, depth_max=6)
    changed = await app.queues.change(name, revision=made.revision, lease_ms=5_000)
    assert (changed.settings.lease_ms, changed.settings.depth_max) == (5_000, 5)
    with pytest.raises(errors.QueueChanged):
        await app.queues.change(name, revision=made.revision, lease_ms=6_000)
    replaced = await app.queues.put(name, rate={"per_second": 10, "burst": 5})
    assert (replaced.settings.depth_max, replaced.settings.rate.burst) == (100_000, 5)
    assert name in [queue.name for queue in (await app.queues.list(limit=500)).queues]
    assert (await app.queues.pause(name)).paused
    assert not (await app.queues.resume(name)).paused
    assert await app.queues.delete(name) is None
    with pytest.raises(errors.QueueNotFound):
        await app.queues.get(name)
    with pytest.raises(errors.QueueNotFound):
        await app.queues.delete(name)


async def test_a_full_queue_says_so(app: Any, name: str) -> None:
    await app.queues.create(name, depth_max=1)
    await app.jobs.enqueue(name, "greet")
    with pytest.raises(errors.TooMany) as refused:
        await app.jobs.enqueue(name, "greet")
    assert refused.value.reason == "queue_full"
    assert refused.value.retry_after is not None


async def test_jobs_are_purged_and_dead_ones_queued_again_by_operations(app: Any, name: str) -> None:
    offer = await _running(app, name)
    await app.work.fail(offer.token, "Timeout", permanent=True)
    await app.jobs.enqueue(name, "greet")
    assert (await app.queues.count_purge(name)).matching == 1
    purge = await app.queues.purge(name, task="greet")
    assert (purge.kind, purge.queue) == ("purge", name)
    assert (await app.queues.count_dead(name, failure_kind="Timeout")).matching == 1
    requeue = await app.queues.requeue_dead(name, failure_kind="Timeout", rate=100)
    assert (await app.operations.get(requeue.id)).id == requeue.id
    assert {operation.id for operation in (await app.operations.list(name)).operations} == {purge.id, requeue.id}
    assert (await app.operations.cancel(requeue.id)).id == requeue.id


async def test_schedules_are_saved_and_deleted(app: Any, name: str) -> None:
    saved = await app.schedules.put(
        name, name, "digest", {"to": "all"}, cron="0 3 * * *", zone="Europe/Berlin", priority=2
    )
    assert (saved.task, saved.cron, value_of(saved.payload)) == ("digest", "0 3 * * *", {"to": "all"})
    assert (await app.schedules.put(name, name, "digest", interval_ms=60_000, paused=True)).paused
    assert name in [schedule.name for schedule in (await app.schedules.list(limit=500)).schedules]
    assert (await app.schedules.get(name)).interval_ms == 60_000
    assert await app.schedules.delete(name) is None
    with pytest.raises(errors.ScheduleNotFound):
        await app.schedules.get(name)
    with pytest.raises(errors.ScheduleInvalid):
        await app.schedules.put(name, name, "digest", cron="nonsense")


async def test_a_gather_runs_its_continuation(app: Any, name: str) -> None:
    jobs = [NewJob(queue=name, task="part", payload=n) for n in range(501)]
    opened = await app.gathers.create(NewJob(queue=name, task="whole"), jobs, seal=False)
    assert (opened.gather.total, opened.gather.sealed, len(opened.results)) == (501, False, 501)
    sealed = await app.gathers.add(opened.gather.id, 501, [], seal=True)
    assert sealed.gather.sealed
    assert (await app.gathers.get(opened.gather.id)).remaining == 501
    page = await app.gathers.results(opened.gather.id, limit=2)
    assert [result.index for result in page.results] == [0, 1]
    assert (await app.gathers.cancel(opened.gather.id)).state == "cancelled"
    with pytest.raises(errors.GatherNotFound):
        await app.gathers.get("00000000-0000-7000-8000-000000000000")


async def test_a_chain_says_what_will_run(app: Any, name: str) -> None:
    load = NewJob(queue=name, task="load", id="00000000-0000-7000-8000-" + new_id()[-12:])
    transform = Continuation(queue=name, task="transform", then=load)
    opened = await app.gathers.create(transform, [NewJob(queue=name, task="extract")])
    assert [(link.task, link.queue) for link in opened.links] == [("transform", name), ("load", name)]
    ran = {}
    for _ in range(3):
        [offer] = (await app.work.dequeue([name], wait=10)).offers
        await app.work.report([{"do": "accept", "token": offer.token}, {"do": "complete", "token": offer.token}])
        ran[offer.task] = offer.id
    assert list(ran) == ["extract", "transform", "load"]
    assert [ran["transform"], load.id] == [link.id for link in opened.links]
    assert (await app.gathers.get(opened.links[1].gather, wait=10)).state == "done"


async def test_a_gather_is_waited_for(app: Any, name: str) -> None:
    opened = await app.gathers.create(NewJob(queue=name, task="whole"), [NewJob(queue=name, task="part")])
    assert (await app.gathers.get(opened.gather.id, wait=0.01)).state == "waiting"
    [offer] = (await app.work.dequeue([name], wait=10)).offers
    await app.work.report([{"do": "accept", "token": offer.token}, {"do": "complete", "token": offer.token}])
    assert (await app.gathers.get(opened.gather.id, wait=10)).state == "done"


async def test_workers_are_listed(app: Any, name: str) -> None:
    await app.work.dequeue([name], worker=f"worker of {name}")
    page = await app.workers.list(queue=name)
    assert [(worker.name, worker.kind) for worker in page.workers] == [(f"worker of {name}", "poll")]


async def test_what_is_not_there_is_told_as_such(app: Any, name: str) -> None:
    missing = "00000000-0000-7000-8000-000000000000"
    with pytest.raises(errors.JobNotFound) as found:
        await app.jobs.get(missing)
    assert (found.value.status, found.value.type) == (404, "urn:penstock:problem:job-not-found")
    with pytest.raises(errors.OperationNotFound):
        await app.operations.get(missing)
    with pytest.raises(errors.Invalid) as invalid:
        await app.jobs.enqueue("no spaces please", "greet")
    assert invalid.value.field == "queue"
    with pytest.raises(ValueError, match="empty"):
        await app.jobs.get("")


async def test_names_may_hold_any_character(app: Any, name: str) -> None:
    with pytest.raises(errors.ScheduleNotFound):
        await app.schedules.get(f"{name}?limit=1&a=ü #")


async def test_a_request_that_is_too_large_is_refused(app: Any, name: str) -> None:
    with pytest.raises(errors.TooLarge):
        await app.jobs.enqueue(name, "greet", "x" * (2 * 1_048_576))
