"""A consumer that stops finishes what it can, and releases the rest at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from penstock import Message
from penstock.client.errors import ConsumerInvalid, WrongThread
from penstock.testing import ManualClock
from tests.end_to_end.running import environment
from tests.sqs_consumers.consuming import consuming
from tests.support.sqs_services import PATIENCE_S, SqsService, until


async def test_running_work_ends_and_nothing_more_begins(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *"abc")
    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()

    async with consuming(sqs, url, handle, concurrency=2) as running:
        await until(lambda: running.consumer.counters.started == 2)
        running.stop.set()
        await asyncio.sleep(0)
        go.set()
    counters = running.consumer.counters
    assert (counters.deleted, counters.released, counters.in_flight) == (2, 0, 0)
    assert sqs.counts(url) == (1, 0)


async def test_what_does_not_end_within_the_grace_is_released(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *"ab")
    cancelled: list[str] = []

    async def handle(message: Message) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.body)
            raise

    async with consuming(sqs, url, handle, visibility=900, grace=1) as running:
        await until(lambda: running.consumer.counters.started == 2)
    assert sorted(cancelled) == ["a", "b"]
    assert running.consumer.counters.released == 2
    assert sqs.counts(url) == (2, 0)


async def test_a_thread_that_goes_on_does_not_keep_its_message(
    ours: SqsService, caplog: pytest.LogCaptureFixture
) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    go = threading.Event()

    def handle(message: Message) -> None:
        go.wait(PATIENCE_S)

    caplog.set_level("INFO", "penstock.sqs")
    async with consuming(ours, url, handle, grace=1) as running:
        await until(lambda: running.consumer.counters.started)
    assert ours.counts(url) == (1, 0)
    assert any("released unfinished work" in record.message for record in caplog.records)
    go.set()


async def test_cancelling_releases_at_once(sqs: SqsService) -> None:
    url = sqs.create("orders")
    sqs.send(url, *"ab")

    async def handle(message: Message) -> None:
        await asyncio.Event().wait()

    async with consuming(sqs, url, handle, visibility=900, clock=ManualClock()) as running:
        await until(lambda: running.consumer.counters.started == 2)
        running.running.cancel()
        await asyncio.wait([running.running])
        assert running.running.cancelled()
        # A poll that was on its way may have received them once more, and then releases them too.
        await until(lambda: sqs.counts(url) == (2, 0))
        running.running = asyncio.create_task(asyncio.sleep(0))


async def test_finished_work_is_deleted_and_not_released_when_cancelled(ours: SqsService) -> None:
    url = ours.create("orders")
    ours.send(url, "a")
    client = ours.new_client()
    deleting, go = threading.Event(), threading.Event()

    def hold(**_: object) -> None:
        deleting.set()
        go.wait(PATIENCE_S)

    client.meta.events.register("provide-client-params.sqs.DeleteMessageBatch", hold)
    async with consuming(ours, url, lambda message: None, client=client) as running:
        await until(deleting.is_set)
        running.running.cancel()
        asyncio.get_running_loop().call_later(0.05, go.set)
        await asyncio.wait([running.running])
        running.running = asyncio.create_task(asyncio.sleep(0))
    client.close()
    assert running.consumer.counters.released == 0
    assert ours.counts(url) == (0, 0)


async def test_what_a_long_poll_brings_after_a_stop_is_released(ours: SqsService) -> None:
    url = ours.create("orders")
    async with consuming(ours, url, lambda message: None, wait=20, visibility=900) as running:
        await until(lambda: running.consumer.counters.polls)
        running.stop.set()
        await asyncio.sleep(0.05)
        assert not running.running.done(), "it waits for the poll that is on its way"
        ours.send(url, "a")
    assert running.consumer.counters.started == 0
    assert running.consumer.counters.released == 1
    assert ours.counts(url) == (1, 0)


async def test_what_a_long_poll_brings_after_a_cancellation_is_released_by_its_thread(ours: SqsService) -> None:
    url = ours.create("orders")
    client = ours.new_client()
    polling = threading.Event()
    calls = 0

    def count(**_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            polling.set()

    client.meta.events.register("before-send.sqs.ReceiveMessage", count)
    async with consuming(ours, url, lambda message: None, client=client, wait=20, visibility=900) as running:
        await until(polling.is_set)
        running.running.cancel()
        await asyncio.wait([running.running])
        ours.send(url, "a")
        running.running = asyncio.create_task(asyncio.sleep(0))
        await until(lambda: ours.counts(url) == (1, 0))
    client.close()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_service_that_does_not_answer_does_not_keep_a_consumer_from_stopping(
    sqlite_sqs: SqsService, caplog: pytest.LogCaptureFixture, *, cancelled: bool
) -> None:
    url = sqlite_sqs.create("orders.fifo")
    sqlite_sqs.send(url, *"ab")
    client = sqlite_sqs.new_client()
    go = threading.Event()

    def hang(**_: object) -> None:
        go.wait(2 * PATIENCE_S)

    client.meta.events.register("provide-client-params.sqs.ChangeMessageVisibilityBatch", hang)

    async def handle(message: Message) -> None:
        await asyncio.Event().wait()

    async with consuming(sqlite_sqs, url, handle, client=client, visibility=900, grace=1) as running:
        await until(lambda: running.consumer.counters.started)
        (running.running.cancel if cancelled else running.stop.set)()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([running.running])
        running.running = asyncio.create_task(asyncio.sleep(0))
    assert any("not released" in record.message for record in caplog.records)
    go.set()


async def test_stop_from_another_thread_and_a_second_run(ours: SqsService) -> None:
    url = ours.create("orders")
    async with consuming(ours, url, lambda message: None) as running:
        await until(lambda: running.consumer.counters.polls)
        with pytest.raises(ConsumerInvalid, match="runs already"):
            await running.consumer.run()
        await asyncio.to_thread(running.consumer.stop)
        await running.running
        ours.send(url, "a")
        running.running = asyncio.create_task(running.consumer.run(running.stop))
        await until(lambda: running.consumer.counters.deleted)


async def test_run_sync_is_refused_on_an_event_loop(ours: SqsService) -> None:
    url = ours.create("orders")
    async with consuming(ours, url, lambda message: None) as running:
        with pytest.raises(WrongThread):
            running.consumer.run_sync()


@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_signals_stop_a_consumer_process(sqlite_sqs: SqsService, tmp_path: Path, signals: list[signal.Signals]) -> None:
    url = sqlite_sqs.create("orders")
    sqlite_sqs.send(url, "a")
    program = tmp_path / "consume.py"
    program.write_text(
        textwrap.dedent(f"""
        import time, boto3
        from botocore.config import Config
        from penstock import SqsConsumer

        def handle(message):
            print("started", flush=True)
            time.sleep({0.5 if len(signals) == 1 else 60})

        client = boto3.client("sqs", endpoint_url={sqlite_sqs.url!r}, region_name="us-east-1",
                              aws_access_key_id="any", aws_secret_access_key="any", config=Config(proxies={{}}))
        consumer = SqsConsumer(client, {url!r}, handle, concurrency=1, wait=0, visibility=900)
        consumer.run_sync()
        print("ended", consumer.counters.deleted, consumer.counters.released, flush=True)
        """)
    )
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(PYTHONPATH=os.pathsep.join(sys.path)),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        for number, one in enumerate(signals):
            if number:
                threading.Event().wait(0.2)
            process.send_signal(one)
        ended = process.stdout.readline()
        assert process.wait(PATIENCE_S) == 0
    assert ended == ("ended 1 0\n" if len(signals) == 1 else "ended 0 1\n")
    assert sqlite_sqs.counts(url) == ((0, 0) if len(signals) == 1 else (1, 0))
