"""Events as a browser reads them: replayed, then live, resumed where they broke off, and ended with the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.end_to_end.jobs.api import Api


def read_events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Put lines together to events."""
    event: dict[str, Any] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, text = line.partition(": ")
            event[name] = json.loads(text) if name == "data" else text
        elif event:
            yield event
            event = {}


def follow(api: Api, job_id: str, last: str | None = None, stop_after: int | None = None) -> list[dict[str, Any]]:
    headers = {} if last is None else {"Last-Event-ID": last}
    found: list[dict[str, Any]] = []
    with api.client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        for event in read_events(answer.iter_lines()):
            found.append(event)
            if stop_after is not None and len(found) == stop_after:
                break
    return found


def test_events_are_replayed_and_then_live_until_the_job_has_ended(api: Api) -> None:
    api.make_queue(retry={"backoff_ms": 0})
    job_id = api.enqueue()

    def work(attempt: int, ending: tuple[str, Any]) -> None:
        [offer] = api.dequeue()
        api.report(offer["token"], "accept")
        for number in range(20):
            told = {"token": offer["token"], "kind": "progress", "data": {"at": [attempt, number], "text": "a\nb"}}
            assert api.post(f"/v1/jobs/{job_id}/events", told).status_code == 201
        api.report(offer["token"], *ending)

    with ThreadPoolExecutor() as pool:
        early = pool.submit(follow, api, job_id)
        work(1, ("fail", {"kind": "Flaky"}))
        broken = follow(api, job_id, stop_after=7)
        resumed = pool.submit(follow, api, job_id, broken[-1]["id"])
        late = pool.submit(follow, api, job_id)
        work(2, ("complete", {"result": 1}))
        whole = early.result()
        assert late.result() == whole
        assert broken + resumed.result() == whole
    *events, end = whole
    assert (end["event"], end["data"]) == ("end", {"state": "succeeded"})
    assert [event["id"] for event in events] == [str(number + 1) for number in range(len(events))]
    told = [event["data"]["data"]["at"] for event in events if event["event"] == "progress"]
    assert told == [[attempt, number] for attempt in (1, 2) for number in range(20)]
    assert events[-1]["event"] == "job.succeeded"
    nothing_more = api.client.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": events[-1]["id"]})
    assert nothing_more.status_code == 204


def test_an_event_told_twice_is_kept_once(api: Api) -> None:
    api.make_queue()
    job_id = api.enqueue()
    [offer] = api.dequeue()
    api.report(offer["token"], "accept")
    told = {"token": offer["token"], "kind": "progress", "data": 1, "id": "first"}
    first = api.post(f"/v1/jobs/{job_id}/events", told)
    assert api.post(f"/v1/jobs/{job_id}/events", told).json() == first.json()
    api.report(offer["token"], "complete")
    assert [event["event"] for event in follow(api, job_id)] == ["progress", "job.succeeded", "end"]


def test_an_event_is_published_by_the_lease_of_its_own_job(api: Api) -> None:
    api.make_queue()
    first, second = api.enqueue(), api.enqueue()
    offers = {offer["id"]: offer for offer in api.dequeue_all(2)}
    api.report(offers[first]["token"], "accept")
    wrong = api.post(f"/v1/jobs/{second}/events", {"token": offers[first]["token"], "kind": "progress"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "token")


def test_events_of_nothing_are_not_found(api: Api) -> None:
    for unknown in ("00000000-0000-0000-0000-000000000000", "nonsense"):
        answer = api.client.get(f"/v1/jobs/{unknown}/events")
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:penstock:problem:job-not-found")
