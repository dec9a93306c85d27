"""The producer's flags: what is sent, how fast, and what is refused."""

from __future__ import annotations

import json
import random
import signal
from itertools import islice, pairwise
from typing import Any
from uuid import UUID

import pytest

from penstock.lab.laboratory import Laboratory
from penstock.lab.observing import Observer
from penstock.lab.payloads import POISON_MARKER
from penstock.lab.producer import NotSent, Producer, ProducerSettings, produce, synthetic
from penstock.lab.stage import Stage
from penstock.lab.variables import BadValue
from tests.lab.playing import play

URL = "http://127.0.0.1:9324/000000000000/orders"


def settings(**given: Any) -> ProducerSettings:
    return ProducerSettings(queue_url=URL, **given)


def test_the_defaults_are_those_of_the_table() -> None:
    told = settings()
    assert (told.n, told.rate, told.batch_size, told.poison_count, told.poison_every) == (10, 0, 10, 0, 0)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"n": -1}, "--n must be 0"),
        ({"rate": -1.0}, "--rate must be 0"),
        ({"rate": float("nan")}, "--rate must be 0"),
        ({"batch_size": 0}, "--batch-size must be 1 to 10, not 0"),
        ({"batch_size": 11}, "--batch-size must be 1 to 10, not 11"),
        ({"poison_count": 11}, "--poison-count must be 0 to 10, not 11"),
        ({"poison_count": -1}, "--poison-count must be 0 to 10, not -1"),
        ({"poison_every": -1}, "--poison-every must be 1 or more"),
        ({"n": 0, "poison_count": 1}, "--poison-count needs a number of messages"),
        ({"queue_url": "orders"}, "--queue-url must begin with"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadValue, match=why):
        ProducerSettings(**{"queue_url": URL, **given}).check()


def bodies(seed: int = 1, **given: Any) -> list[dict[str, Any]]:
    drafts = islice(synthetic(settings(**given), random.Random(seed)), 100)
    return [draft.body for draft in drafts]


def test_a_payload_has_an_id_and_some_work() -> None:
    sent = bodies(n=50)
    assert len({body["id"] for body in sent}) == 50
    assert all(UUID(body["id"]).version == 4 and 1 <= body["work"] <= 1_000 for body in sent)
    assert all(set(body) == {"id", "work"} for body in sent)


def test_poison_comes_at_random_places_or_at_every_nth() -> None:
    some = [index for index, body in enumerate(bodies(n=20, poison_count=3)) if body.get("poison")]
    assert len(some) == 3
    assert some != [index for index, body in enumerate(bodies(2, n=20, poison_count=3)) if body.get("poison")]
    every = [index for index, body in enumerate(bodies(n=9, poison_count=7, poison_every=3)) if body.get("poison")]
    assert every == [2, 5, 8]
    assert all(POISON_MARKER in json.dumps(body) for body in bodies(n=9, poison_every=3) if body.get("poison"))
    assert not any(POISON_MARKER in json.dumps(body) for body in bodies(n=9))


def test_without_a_number_there_is_no_end() -> None:
    assert len(bodies(n=0)) == 100


def test_messages_go_in_batches(sqs: Any, server: Any) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    producer = Producer(ProducerSettings(region="us-west-1", queue_url=url, n=25, batch_size=10), Observer({}))
    sizes: list[int] = []
    producer.sqs.meta.events.register(
        "provide-client-params.sqs.SendMessageBatch", lambda params, **_: sizes.append(len(params["Entries"]))
    )
    assert producer.run() == 25
    producer.sqs.close()
    assert sizes == [10, 10, 5]


def test_a_rate_spreads_messages_over_time(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=20, rate=4, batch_size=10)

    instants = [event.t_ms for event in play(sqlite_laboratory, do).of("send", "ok")]
    assert len(instants) == 20
    assert 3_900 <= instants[-1] <= 4_100
    assert all(later - earlier <= 1_100 for earlier, later in pairwise(instants))


def test_it_runs_until_it_is_stopped(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        producer = stage.producer(n=0, rate=10)
        stage.sleep(30)
        stage.terminate(producer)
        stage.wait(producer)
        assert producer.code == 0

    assert 290 <= len(play(sqlite_laboratory, do).of("send", "ok")) <= 320


def test_what_the_queue_refuses_is_an_error(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="small", Attributes={"MaximumMessageSize": "1024"})["QueueUrl"]
    producer = Producer(ProducerSettings(region="us-west-1", queue_url=url), Observer({}))
    draft = next(iter(synthetic(settings(), random.Random(1))))
    draft.body["padding"] = "x" * 2_000
    try:
        with pytest.raises(NotSent, match="1 of 1 messages"):
            producer.send([draft])
    finally:
        producer.sqs.close()


def test_a_fifo_queue_gets_groups_and_a_sequence(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        assert produce(ProducerSettings(region="us-west-1", queue_url=url, n=3), Observer({})) == 3
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    assert [json.loads(message["Body"])["sequence"] for message in answer["Messages"]] == [0, 1, 2]
