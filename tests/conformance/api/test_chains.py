"""Chains over the API: a continuation that has a continuation, and the ids of all that is to run."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest

from tests.conformance.api.conftest import ADMIN, BILLING, Connect

QUEUE = "orders"
JOB = {"queue": QUEUE, "task": "extract"}
GATHER_ID = "0192f0c0-1234-7abc-8def-0123456789ab"
CHOSEN = "0192f0c0-1234-7abc-8def-0123456789cd"
LINKS_MAX = 50


def nested(*links: dict[str, Any]) -> dict[str, Any]:
    """Put jobs one into the other."""
    first, *rest = links
    return {**first, "then": nested(*rest)} if rest else first


def steps(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"queue": QUEUE, "task": f"step-{place}", **fields} for place in range(count)]


async def run(client: httpx.AsyncClient, result: object = None) -> dict[str, Any]:
    """Carry out the only job that there is."""
    [offer] = (await client.post("/v1/dequeue", json={"queues": [QUEUE], "count": 10})).json()["offers"]
    reports = [{"do": "accept", "token": offer["token"]}, {"do": "complete", "token": offer["token"], "result": result}]
    answer = (await client.post("/v1/leases", json={"reports": reports})).json()
    assert [entry["status"] for entry in answer["results"]] == [200, 200]
    return dict(offer)


async def test_a_chain_from_its_opening_to_its_end(connect: Connect) -> None:
    admin = connect(ADMIN)
    first, second, last = steps(3)
    last |= {"id": CHOSEN, "queue": "reports", "payload": {"sum": True}}
    opening = {"id": GATHER_ID, "then": nested(first, second, last), "jobs": [JOB]}
    answer = await admin.post("/v1/gathers", json=opening)
    assert answer.status_code == 201, answer.text
    links = answer.json()["links"]
    assert [(link["queue"], link["task"]) for link in links] == [
        (QUEUE, "step-0"),
        (QUEUE, "step-1"),
        ("reports", "step-2"),
    ]
    assert (links[0]["gather"], links[2]["id"]) == (GATHER_ID, CHOSEN)
    assert len({link["gather"] for link in links} | {link["id"] for link in links}) == 6
    again = await admin.post("/v1/gathers", json=opening)
    assert (again.status_code, again.json()["links"]) == (200, links)

    shown = (await admin.get(f"/v1/gathers/{links[2]['gather']}")).json()
    assert (shown["state"], shown["total"], shown["sealed"]) == ("pending", 0, False)
    assert shown["continuation"] == {"queue": "reports", "task": "step-2", "id": None}
    await run(admin)
    for link, follows in itertools.pairwise(links):
        offer = await run(admin, result=link["task"])
        assert (offer["id"], offer["gathered"]) == (link["id"], link["gather"])
        assert offer["gather"] == {"id": follows["gather"], "index": 0}
        job = (await admin.get(f"/v1/jobs/{link['id']}")).json()
        assert (job["gathered"], job["gather"]) == (offer["gathered"], offer["gather"])
        [result] = (await admin.get(f"/v1/gathers/{follows['gather']}/results")).json()["results"]
        assert (result["id"], result["result"]) == (link["id"], link["task"])
    [offer] = (await admin.post("/v1/dequeue", json={"queues": ["reports"]})).json()["offers"]
    assert (offer["id"], offer["payload"], "gather" in offer) == (CHOSEN, {"sum": True}, False)
    assert (await admin.get(f"/v1/gathers/{links[2]['gather']}")).json()["continuation"]["id"] == CHOSEN


async def test_a_plain_gather_says_which_job_continues_it(connect: Connect) -> None:
    admin = connect(ADMIN)
    opened = (await admin.post("/v1/gathers", json={"then": steps(1)[0], "jobs": [JOB]})).json()
    [link] = opened["links"]
    assert link["gather"] == opened["gather"]["id"]
    await run(admin)
    assert (await run(admin))["id"] == link["id"]
    filled = await admin.post(f"/v1/gathers/{link['gather']}/jobs", json={"first": 0, "jobs": []})
    assert "links" not in filled.json()


async def test_the_longest_chain_is_taken(connect: Connect) -> None:
    admin = connect(ADMIN)
    answer = await admin.post("/v1/gathers", json={"then": nested(*steps(LINKS_MAX))})
    assert answer.status_code == 201
    for link in answer.json()["links"]:
        assert (await run(admin))["id"] == link["id"]
    assert len(answer.json()["links"]) == LINKS_MAX


@pytest.mark.parametrize(
    ("then", "field"),
    [
        (nested(*steps(LINKS_MAX + 1)), "then"),
        (nested(*steps(2), {"queue": QUEUE}), "then.then.then.task"),
        (nested(*steps(2), {**JOB, "unique_key": "u"}), "then.then.then.unique_key"),
        (nested(*steps(1), {**JOB, "delay_ms": 1, "run_at_ms": 1}), "then.then.run_at_ms"),
        (nested(*steps(1), {**JOB, "id": CHOSEN}, {**JOB, "id": CHOSEN}), "then.then.then.id"),
        (nested({**JOB, "tenant": "acme"}, {**JOB, "tenant": "bolt"}), "then.then.tenant"),
        (nested(*steps(1), {**JOB, "then": [JOB]}), "then.then.then"),
    ],
)
async def test_what_is_no_chain(connect: Connect, then: dict[str, Any], field: str) -> None:
    admin = connect(ADMIN)
    answer = await admin.post("/v1/gathers", json={"id": GATHER_ID, "then": then, "jobs": [JOB]})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:penstock:problem:invalid"), answer.text
    assert answer.json()["field"] == field
    assert (await admin.get(f"/v1/gathers/{GATHER_ID}")).status_code == 404


async def test_a_chain_nested_beyond_all_measure_is_refused(connect: Connect) -> None:
    deep = '{"queue":"q","task":"t","then":' * 10_000 + "null" + "}" * 10_000
    answer = await connect(ADMIN).post("/v1/gathers", content=f'{{"then":{deep}}}')
    assert answer.status_code in {400, 422}, answer.text


@pytest.mark.parametrize(
    "change",
    [
        nested(*steps(1)),
        nested(*steps(3)),
        nested(*steps(1), {**steps(2)[1], "payload": 1}),
        nested(*steps(1), {**steps(2)[1], "id": CHOSEN}),
        nested(*steps(1), {**steps(2)[1], "queue": "other"}),
    ],
)
async def test_another_chain_under_the_same_id_is_refused(connect: Connect, change: dict[str, Any]) -> None:
    admin = connect(ADMIN)
    assert (await admin.post("/v1/gathers", json={"id": GATHER_ID, "then": nested(*steps(2))})).status_code == 201
    answer = await admin.post("/v1/gathers", json={"id": GATHER_ID, "then": change})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:penstock:problem:gather-exists")


async def test_cancelling_the_first_gather_ends_the_chain(connect: Connect) -> None:
    admin = connect(ADMIN)
    opened = (await admin.post("/v1/gathers", json={"then": nested(*steps(3)), "jobs": [JOB]})).json()
    await admin.post(f"/v1/gathers/{opened['gather']['id']}/cancel")
    for link in opened["links"]:
        assert (await admin.get(f"/v1/gathers/{link['gather']}")).json()["state"] == "cancelled"


async def test_all_links_are_of_one_tenant(connect: Connect) -> None:
    admin, acme, bolt = connect(ADMIN), connect("acme"), connect("bolt")
    opened = (await acme.post("/v1/gathers", json={"then": nested(*steps(3))})).json()
    for link in opened["links"]:
        assert (await acme.get(f"/v1/gathers/{link['gather']}")).status_code == 200
        assert (await bolt.get(f"/v1/gathers/{link['gather']}")).status_code == 404
        assert (await run(admin))["tenant"] == "acme"


async def test_a_token_of_some_queues_opens_no_chain_into_others(connect: Connect) -> None:
    billing = connect(BILLING)
    own, other = {**JOB, "queue": "billing.eu"}, {**JOB, "queue": "hidden"}
    assert (await billing.post("/v1/gathers", json={"then": nested(own, own)})).status_code == 201
    assert (await billing.post("/v1/gathers", json={"then": nested(own, own, other)})).status_code == 403
