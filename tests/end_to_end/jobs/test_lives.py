"""The lives of jobs, over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.end_to_end.jobs.api import HOUR_MS, Api


def test_a_job_is_enqueued_offered_accepted_and_completed(api: Api) -> None:
    api.make_queue()
    answer = api.post(
        "/v1/jobs",
        {"queue": api.queue, "task": "greet", "payload": {"name": "Ada"}, "tags": ["b", "a"], "priority": 7},
        x_correlation_id="call-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    assert (answer.status_code, answer.headers["x-correlation-id"]) == (202, "call-1")
    job_id = answer.json()["id"]
    assert answer.headers["location"] == f"/v1/jobs/{job_id}"
    assert answer.json() == {"id": job_id, "queue": api.queue, "state": "queued"}
    [offer] = api.dequeue()
    assert (offer["id"], offer["payload"], offer["attempt"]) == (job_id, {"name": "Ada"}, 1)
    assert (offer["correlation_id"], offer["tags"]) == ("call-1", ["a", "b"])
    assert offer["accept_in_ms"] > 0
    assert offer["traceparent"] == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    accepted = api.report(offer["token"], "accept").json()
    left_ms = accepted.pop("lease_ms")
    assert 0 < left_ms <= offer["lease_ms"]
    assert accepted == {"state": "running", "attempt": 1, "until_ms": accepted["until_ms"]}
    assert api.report(offer["token"], "heartbeat").json()["until_ms"] >= accepted["until_ms"]
    assert api.report(offer["token"], "complete", {"result": {"ok": True}}).json()["state"] == "succeeded"
    assert api.client.get(f"/v1/jobs/{job_id}/result").json() == {
        "id": job_id,
        "state": "succeeded",
        "result": {"ok": True},
    }
    job = api.job(job_id)
    assert (job["state"], job["result"], job["payload"]) == ("succeeded", {"ok": True}, {"name": "Ada"})
    [attempt] = job["history"]
    assert (attempt["number"], attempt["worker"], attempt["outcome"]) == (1, "w", "succeeded")


def test_a_replay_is_answered_with_the_job_and_in_the_end_with_its_result(api: Api) -> None:
    api.make_queue()
    body = {"queue": api.queue, "task": "greet", "payload": 1}
    first = api.post("/v1/jobs", body, idempotency_key="once")
    assert first.status_code == 202
    assert "idempotency-replayed" not in first.headers
    again = api.post("/v1/jobs", body, x_idempotency_key="once")
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert again.json() == {**first.json(), "replayed": True}
    other = api.post("/v1/jobs", {**body, "payload": 2}, idempotency_key="once")
    assert (other.status_code, other.json()["type"]) == (422, "urn:penstock:problem:idempotency-key-reused")
    [offer] = api.dequeue()
    api.report(offer["token"], "accept")
    api.report(offer["token"], "complete", {"result": [1, 2]})
    last = api.post("/v1/jobs", body, idempotency_key="once").json()
    assert (last["id"], last["state"], last["result"]) == (first.json()["id"], "succeeded", [1, 2])


def test_a_batch_tells_what_became_of_each(api: Api) -> None:
    api.make_queue(depth_max=2)
    entry = {"queue": api.queue, "task": "greet"}
    wrong = {**entry, "retry": {"factor": 0}}
    answer = api.post("/v1/jobs/batch", {"jobs": [entry, {**entry, "delay_ms": 5}, entry, wrong, 7]})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [202, 202, 429, 422, 422]
    assert results[2]["problem"]["reason"] == "queue_full"
    assert [result["problem"]["field"] for result in results[3:]] == ["jobs[3].retry.factor", "jobs[4]"]
    assert results[1]["job"]["state"] == "scheduled"


def test_reports_in_a_batch_are_taken_each_in_its_own_right(api: Api) -> None:
    api.make_queue()
    for _ in range(3):
        api.enqueue()
    first, second, third = api.dequeue_all(3)
    reports = [
        {"do": "accept", "token": first["token"]},
        {"do": "complete", "token": first["token"], "result": 1},
        {"do": "accept", "token": second["token"]},
        {"do": "fail", "token": second["token"], "failure": {"kind": "Bug", "permanent": True}},
        {"do": "release", "token": third["token"]},
        {"do": "heartbeat", "token": third["token"]},
        {"do": "snooze", "token": "nonsense", "delay_ms": 1},
        {"do": "snooze", "token": "nonsense"},
        {"do": "explode", "token": "nonsense"},
    ]
    results = api.post("/v1/leases", {"reports": reports}).json()["results"]
    assert [result["status"] for result in results] == [200, 200, 200, 200, 200, 409, 404, 422, 422]
    assert api.counts() == {"succeeded": 1, "dead": 1, "queued": 1}


def test_a_job_that_fails_is_tried_again_and_then_dead(api: Api) -> None:
    api.make_queue(retry={"attempts_max": 2, "backoff_ms": 0})
    job_id = api.enqueue()
    for attempt in (1, 2):
        [offer] = api.dequeue()
        assert (offer["id"], offer["attempt"], offer.get("failures", 0)) == (job_id, attempt, attempt - 1)
        api.report(offer["token"], "accept")
        api.report(offer["token"], "fail", {"kind": "Flaky", "message": f"number {attempt}"})
    job = api.job(job_id)
    assert (job["state"], job["failure"]["message"]) == ("dead", "number 2")
    assert [attempt["failure"]["message"] for attempt in job["history"]] == ["number 1", "number 2"]
    [dead] = api.client.get(f"/v1/queues/{api.queue}/dead").json()["jobs"]
    assert dead["id"] == job_id
    [group] = api.client.get(f"/v1/queues/{api.queue}/dead/groups").json()["groups"]
    assert (group["kind"], group["count"], group["example_id"]) == ("Flaky", 1, job_id)
    assert api.post(f"/v1/queues/{api.queue}/dead/requeue", {"dry_run": True}).json() == {
        "dry_run": True,
        "matching": 1,
        "more": False,
    }
    started = api.post(f"/v1/queues/{api.queue}/dead/requeue", {"failure_kind": "Flaky"})
    assert started.status_code == 202
    [offer] = api.dequeue()  # The poll waits for the operation to get there.
    assert offer["id"] == job_id
    operation = api.client.get(f"/v1/operations/{started.json()['id']}").json()
    assert (operation["kind"], operation["queue"]) == ("requeue", api.queue)


def test_a_result_is_waited_for_while_the_job_runs(api: Api) -> None:
    api.make_queue()
    job_id = api.enqueue()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(api.client.get, f"/v1/jobs/{job_id}/result?wait=20")
        [offer] = api.dequeue()
        api.report(offer["token"], "accept")
        api.report(offer["token"], "complete", {"result": 7})
        answer = waiting.result()
    assert (answer.status_code, answer.json()["result"]) == (200, 7)
    unfinished = api.client.get(f"/v1/jobs/{api.enqueue()}/result")
    assert (unfinished.status_code, unfinished.json()["state"]) == (202, "queued")


def test_cancel_reaches_the_worker_by_its_heartbeat(api: Api) -> None:
    api.make_queue()
    waiting, running = api.enqueue(), api.enqueue()
    assert api.post(f"/v1/jobs/{waiting}/cancel").json()["state"] == "cancelled"
    [offer] = api.dequeue()
    assert offer["id"] == running
    api.report(offer["token"], "accept")
    assert api.post(f"/v1/jobs/{running}/cancel").json()["cancel_requested"]
    assert api.report(offer["token"], "heartbeat").json()["cancel"]
    assert api.report(offer["token"], "release").json()["state"] == "cancelled"
    assert api.post(f"/v1/jobs/{running}/retry").json()["state"] == "queued"


def test_jobs_are_listed_by_what_they_are(api: Api) -> None:
    api.make_queue()
    first = api.enqueue(tags=["red"], tenant="one")
    second = api.enqueue(delay_ms=HOUR_MS, task="later", tenant="two")
    base = f"/v1/jobs?queue={api.queue}"
    for query, expected in [
        ("", [second, first]),
        ("&state=queued", [first]),
        ("&state=queued,scheduled", [second, first]),
        ("&tag=red", [first]),
        ("&task=later", [second]),
        ("&tenant=one", [first]),
        ("&enqueued_before_ms=1", []),
    ]:
        answer = api.client.get(base + query)
        assert [job["id"] for job in answer.json()["jobs"]] == expected, query
    page = api.client.get(f"{base}&limit=1").json()
    assert [job["id"] for job in page["jobs"]] == [second]
    page = api.client.get(f"{base}&limit=1&cursor={page['cursor']}").json()
    assert [job["id"] for job in page["jobs"]] == [first]
    assert page["cursor"] is None


def test_a_schedule_is_saved_shown_and_deleted(api: Api) -> None:
    name = f"{api.queue[:40]}-nightly"
    body = {"queue": api.queue, "job": {"task": "tidy", "payload": [1]}, "cron": "0 3 * * *", "zone": "Europe/Berlin"}
    saved = api.client.put(f"/v1/schedules/{name}", json=body)
    assert saved.status_code == 200, saved.text
    assert saved.json()["next_at_ms"] is not None
    assert api.client.get(f"/v1/schedules/{name}").json() == saved.json()
    assert name in [schedule["name"] for schedule in api.client.get("/v1/schedules").json()["schedules"]]
    assert api.client.delete(f"/v1/schedules/{name}").status_code == 204
    gone = api.client.get(f"/v1/schedules/{name}")
    assert (gone.status_code, gone.json()["type"]) == (404, "urn:penstock:problem:schedule-not-found")


def test_the_simplest_routes_lead_to_the_same_jobs(api: Api) -> None:
    api.make_queue()
    answer = api.post("/enqueue", {"queue": api.queue, "payload": "hello"}, x_idempotency_key=f"{api.queue[:100]}")
    assert answer.status_code == 202
    [offer] = api.dequeue()
    assert (offer["task"], offer["payload"]) == ("default", "hello")
    api.report(offer["token"], "accept")
    api.report(offer["token"], "fail", {"kind": "Bug", "permanent": True})
    [dead] = api.client.get(f"/dlq?queue={api.queue}").json()["jobs"]
    assert dead["id"] == offer["id"]
    assert api.post("/dlq/requeue", {"id": dead["id"]}).json()["state"] == "queued"
    stats = api.client.get("/stats").json()
    assert {"region", "queues", "job_queues"} <= stats.keys()


def test_a_queue_is_paused_changed_purged_and_deleted(api: Api) -> None:
    api.make_queue()
    path = f"/v1/queues/{api.queue}"
    api.enqueue()
    assert api.post(f"{path}/pause").json()["paused"]
    assert api.dequeue(wait_ms=0) == []
    changed = api.client.patch(path, json={"settings": {"depth_max": 5}}).json()
    assert (changed["settings"]["depth_max"], changed["settings"]["offer_ms"]) == (5, HOUR_MS)
    stale = api.client.patch(path, json={"settings": {"depth_max": 6}, "revision": changed["revision"] - 1})
    assert (stale.status_code, stale.json()["type"]) == (409, "urn:penstock:problem:queue-changed")
    occupied = api.client.delete(path)
    assert (occupied.status_code, occupied.json()["type"]) == (409, "urn:penstock:problem:state-conflict")
    assert not api.post(f"{path}/resume").json()["paused"]
    assert len(api.dequeue()) == 1
    assert api.post(f"{path}/purge", {}).status_code == 202
    assert api.client.get(f"{path}/operations").json()["operations"][0]["kind"] == "purge"


def test_two_hundred_enqueues_with_one_key_make_one_job(api: Api) -> None:
    api.make_queue()
    body = {"queue": api.queue, "task": "greet"}
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: api.post("/v1/jobs", body, idempotency_key="one"), range(200)))
    assert {answer.status_code for answer in answers} <= {202, 200, 409}
    assert [answer.status_code for answer in answers].count(202) == 1
    assert len({answer.json()["id"] for answer in answers if answer.status_code != 409}) == 1
    assert len(api.dequeue(10, wait_ms=0)) == 1
