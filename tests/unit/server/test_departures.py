"""Clients that leave, dawdle or do not read, and a server that stops: what was done for them is finished or undone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.server.exchange import ConnectionLimits
from penstock.wire.http import Request, Response
from tests.unit.server.serving import Client, Desk, Serve, TakenBack, Waiting, get, post

# uvloop holds up the signal by which a test is stopped otherwise.
pytestmark = pytest.mark.timeout(60, method="thread")
LARGE = b"x" * 20_000_000
"""More than the buffers of both ends hold."""
IMPATIENT = ConnectionLimits(patience_s=0.05)
PATIENT_WITH_THE_QUICK = ConnectionLimits(patience_s=1)
"""For clients that are served before they become slow: a busy machine must not make them slow too early."""


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def close(client: Client) -> None:
    await client.close()


async def half_close(client: Client) -> None:
    client.writer.write_eof()


async def reset(client: Client) -> None:
    client.reset()


ways_to_leave = pytest.mark.parametrize("leave", [close, half_close, reset])


@ways_to_leave
async def test_a_waiting_answer_is_cancelled_when_its_client_leaves(
    serve: Serve, desk: Desk, leave: Callable[[Client], Awaitable[None]]
) -> None:
    waiting = desk.handlers["/queue/wait"] = Waiting()
    client = await (await serve()).connect()
    client.write(post("/queue/wait"))
    await waiting.called.wait()
    await leave(client)
    await waiting.cancelled.wait()


@ways_to_leave
async def test_nothing_is_left_of_a_client_that_left(
    serve: Serve, leave: Callable[[Client], Awaitable[None]], without_collector: None
) -> None:
    served = await serve()
    client, other = await served.connect(), await served.connect()
    await client.ask(post("/"))
    await other.ask(post("/"))
    connections = served.server.server_state.connections
    left = [weakref.ref(connection) for connection in connections]
    await leave(client)
    while len(connections) > 1:
        await other.ask(post("/"))
    # Not even until the collector comes by: that is seldom, and those who come and go would fill the memory.
    while sum(connection() is not None for connection in left) > 1:
        await other.ask(post("/"))


@ways_to_leave
async def test_requests_behind_the_one_whose_client_left_are_never_started(
    serve: Serve, desk: Desk, leave: Callable[[Client], Awaitable[None]]
) -> None:
    waiting = desk.handlers["/queue/wait"] = Waiting()
    client = await (await serve()).connect()
    client.write(post("/queue/wait"), post("/", b"never"), get("/stats"))
    await waiting.called.wait()
    await leave(client)
    await waiting.cancelled.wait()
    assert len(desk.requests) == 1


@ways_to_leave
async def test_an_answer_that_comes_after_its_client_left_is_taken_back(
    serve: Serve, desk: Desk, leave: Callable[[Client], Awaitable[None]]
) -> None:
    taken_back = TakenBack()
    waiting = Waiting()

    async def deaf_to_cancellation(request: Request) -> Response:
        try:
            return await waiting(request)
        except asyncio.CancelledError:
            return Response(body=b"leased", undelivered=taken_back)

    desk.handlers["/queue/wait"] = deaf_to_cancellation
    client = await (await serve()).connect()
    client.write(post("/queue/wait"))
    await waiting.called.wait()
    await leave(client)
    await taken_back.event.wait()


@pytest.mark.parametrize("leave", [close, reset])
async def test_an_answer_that_was_written_only_in_part_is_taken_back(
    serve: Serve, desk: Desk, leave: Callable[[Client], Awaitable[None]]
) -> None:
    taken_back = TakenBack()

    async def much(request: Request) -> Response:
        return Response(body=LARGE, undelivered=taken_back)

    desk.handlers["/queue/much"] = much
    client = await (await serve()).connect(receive_bytes=4_096)
    client.write(post("/queue/much"))
    await client.reader.readexactly(1)
    assert not taken_back.event.is_set()
    await leave(client)
    await taken_back.event.wait()


@pytest.mark.parametrize("size", [1, 100_000, len(LARGE)])
async def test_an_answer_that_is_read_is_not_taken_back(serve: Serve, desk: Desk, size: int) -> None:
    taken_back = TakenBack()

    async def much(request: Request) -> Response:
        return Response(body=LARGE[:size], undelivered=taken_back)

    desk.handlers["/queue/much"] = much
    served = await serve()
    client = await served.connect()
    for _ in range(2):
        client.write(post("/queue/much"), post("/", b"next"))
        assert len((await client.read()).body) == size
        assert (await client.read()).body == b"next"
    client.write(post("/queue/much", b"", "Connection: close"))
    assert len((await client.read()).body) == size
    await served.close()
    assert not taken_back.event.is_set()


async def test_the_next_request_waits_until_the_client_reads(serve: Serve, desk: Desk) -> None:
    async def much(request: Request) -> Response:
        return Response(body=LARGE)

    next_one = Waiting(Response(body=b"next"))
    desk.handlers |= {"/queue/much": much, "/queue/next": next_one}
    client = await (await serve()).connect(receive_bytes=4_096)
    client.write(post("/queue/much"), post("/queue/next"))
    await client.reader.readexactly(1)
    assert not next_one.called.is_set()
    next_one.go_on.set()
    assert (await client.read()).body == LARGE
    assert (await client.read()).body == b"next"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST / HT",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc",
    ],
    ids=["nothing", "line", "headers", "body"],
)
async def test_a_client_that_dawdles_is_closed(serve: Serve, desk: Desk, sent: bytes) -> None:
    client = await (await serve(limits=IMPATIENT)).connect()
    client.write(sent)
    assert await client.at_end()


@pytest.mark.slow
async def test_a_client_that_dawdles_after_an_answer_is_closed(serve: Serve) -> None:
    client = await (await serve(limits=PATIENT_WITH_THE_QUICK)).connect()
    await client.ask(post("/"))
    assert await client.at_end()


async def test_a_client_that_trickles_is_closed_in_time(serve: Serve, desk: Desk) -> None:
    """The whole request has to come in time, not only the next byte of it."""
    client = await (await serve(limits=IMPATIENT)).connect()
    ended = asyncio.create_task(client.at_end())
    client.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nX: ")
    while not ended.done():
        client.write(b"x")
        await asyncio.wait((ended,), timeout=0.005)
    assert desk.requests == []


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_cut_off_and_its_answer_taken_back(serve: Serve, desk: Desk) -> None:
    taken_back = TakenBack()

    async def much(request: Request) -> Response:
        return Response(body=LARGE, undelivered=taken_back)

    desk.handlers["/queue/much"] = much
    client = await (await serve(limits=PATIENT_WITH_THE_QUICK)).connect(receive_bytes=4_096)
    client.write(post("/queue/much"))
    await taken_back.event.wait()


@pytest.mark.slow
async def test_a_client_that_dawdles_after_an_early_answer_is_closed(serve: Serve) -> None:
    client = await (await serve(limits=PATIENT_WITH_THE_QUICK)).connect()
    client.write(b"POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na")
    assert (await client.read()).body == b"/early "
    client.write(b"bc")
    assert await client.at_end()


@pytest.mark.slow
async def test_patience_is_not_lost_while_an_answer_is_being_made(serve: Serve, desk: Desk) -> None:
    waiting = desk.handlers["/queue/wait"] = Waiting()
    served = await serve(limits=PATIENT_WITH_THE_QUICK)
    client, other = await served.connect(), await served.connect()
    client.write(post("/queue/wait"))
    await waiting.called.wait()
    assert await other.at_end()  # By now the patience with both would be at its end.
    third = await served.connect()
    assert await third.at_end()
    waiting.go_on.set()
    assert (await client.read()).body == b"waited"


async def test_a_stopping_server_answers_what_it_has_and_closes(serve: Serve, desk: Desk) -> None:
    waiting = desk.handlers["/queue/wait"] = Waiting()
    served = await serve()
    idle, half, busy = await served.connect(), await served.connect(), await served.connect()
    await idle.ask(post("/"))
    half.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc")
    busy.write(post("/queue/wait"), post("/", b"behind it"))
    await waiting.called.wait()
    served.server.stop()
    assert await idle.at_end()
    assert await half.at_end()
    waiting.go_on.set()
    first, second = await busy.read(), await busy.read()
    assert (first.body, second.body) == (b"waited", b"behind it")
    assert second.headers["connection"] == "close"
    assert await busy.at_end()
    await served.running


async def test_a_server_told_twice_to_stop_waits_for_nobody(serve: Serve, desk: Desk) -> None:
    waiting = desk.handlers["/queue/wait"] = Waiting()
    served = await serve()
    client = await served.connect()
    client.write(post("/queue/wait"))
    await waiting.called.wait()
    served.server.stop()
    served.server.stop()
    await served.running
    assert not waiting.go_on.is_set()
