"""A worker whose lease is over is told so, whatever it says, and changes nothing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.end_to_end.jobs.api import HOUR_MS, Api

LOST = "urn:penstock:problem:lease-lost"

SAYINGS: dict[str, Any] = {
    "accept": None,
    "heartbeat": None,
    "complete": {"result": "stale"},
    "fail": {"kind": "Stale", "permanent": True},
    "release": None,
    "snooze": {"delay_ms": 1},
}


def publish(api: Api, offer: dict[str, Any]) -> httpx.Response:
    return api.post(f"/v1/jobs/{offer['id']}/events", {"token": offer["token"], "kind": "stale"})


def say_all(api: Api, stale: dict[str, Any]) -> None:
    """Say all that can be said with a lease, one by one and in a batch, and be told each time that it is over."""
    before = api.job(stale["id"])
    for verb, body in SAYINGS.items():
        answer = api.report(stale["token"], verb, body)
        assert (answer.status_code, answer.json()["type"]) == (409, LOST), verb
        assert api.job(stale["id"]) == before, verb
    answer = publish(api, stale)
    assert (answer.status_code, answer.json()["type"]) == (409, LOST)
    reports = [
        {"do": verb, "token": stale["token"], **({"failure": body} if verb == "fail" else body or {})}
        for verb, body in SAYINGS.items()
    ]
    results = api.post("/v1/leases", {"reports": reports}).json()["results"]
    assert {(result["status"], result["problem"]["type"]) for result in results} == {(409, LOST)}
    assert api.job(stale["id"]) == before


def test_a_worker_whose_lease_lapsed_while_another_runs_the_job_changes_nothing(api: Api) -> None:
    api.make_queue(lease_ms=1_000, retry={"backoff_ms": 0})
    job_id = api.enqueue()
    [stale] = api.dequeue()
    assert api.report(stale["token"], "accept").status_code == 200
    # The next lease must not lapse, however slow the machine is.
    api.change_queue(lease_ms=HOUR_MS)
    [current] = api.dequeue()  # It waits until the first lease has lapsed.
    assert (current["id"], current["attempt"], current["losses"]) == (job_id, 2, 1)
    assert api.report(current["token"], "accept").status_code == 200
    say_all(api, stale)
    assert api.report(current["token"], "complete", {"result": "current"}).json()["state"] == "succeeded"
    say_all(api, stale)
    job = api.job(job_id)
    assert (job["result"], [attempt["outcome"] for attempt in job["history"]]) == ("current", ["lost", "succeeded"])


def test_a_worker_that_never_accepted_and_was_overtaken_changes_nothing(api: Api) -> None:
    api.make_queue()
    job_id = api.enqueue()
    [stale] = api.dequeue()
    api.report(stale["token"], "release")
    [current] = api.dequeue()
    assert (current["id"], current["attempt"]) == (job_id, 1)
    assert current["token"] != stale["token"]
    say_all(api, stale)
    assert api.report(current["token"], "accept").status_code == 200
    say_all(api, stale)
    assert api.report(current["token"], "complete").status_code == 200


@pytest.mark.parametrize("token", ["x", "A" * 56, "AQ" * 28, "%00", "é"])
def test_a_token_that_was_never_given_out_is_not_found(api: Api, token: str) -> None:
    for verb, body in SAYINGS.items():
        answer = api.report(token, verb, body)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:penstock:problem:lease-not-found")
