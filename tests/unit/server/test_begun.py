"""Requests that are begun without a task: answered in order, made anew if need be, and dropped with their client."""

from __future__ import annotations

import asyncio
import gc

import pytest

from penstock.wire.http import Response
from tests.unit.server.serving import Desk, Serve, TakenBack, Waiting, post

# uvloop holds up the signal by which a test is stopped otherwise.
pytestmark = pytest.mark.timeout(60, method="thread")


async def made(text: bytes) -> Response:
    return Response(body=text)


async def test_a_request_that_was_begun_gets_its_reply_in_its_turn(serve: Serve, desk: Desk) -> None:
    first, begun = Waiting(), asyncio.get_running_loop().create_future()
    desk.handlers["/queue/first"] = first
    desk.begun["/queue/begun"] = begun
    client = await (await serve()).connect()
    client.write(post("/queue/first"), post("/queue/begun"), post("/", b"last"))
    await first.called.wait()
    assert not begun.done()
    first.go_on.set()
    reply = await begun
    assert [request.path for request in desk.requests] == ["/queue/first"]
    reply(Response(body=b"begun"))
    assert [(await client.read()).body for _ in range(3)] == [b"waited", b"begun", b"last"]


async def test_a_reply_may_still_have_to_be_made(serve: Serve, desk: Desk) -> None:
    begun = desk.begun["/queue/begun"] = asyncio.get_running_loop().create_future()
    client = await (await serve()).connect()
    client.write(post("/queue/begun"), post("/", b"next"))
    (await begun)(made(b"made"))
    assert [(await client.read()).body for _ in range(2)] == [b"made", b"next"]


@pytest.mark.parametrize("making", [False, True])
@pytest.mark.filterwarnings("error")
async def test_a_reply_to_a_client_that_left_comes_to_nothing(serve: Serve, desk: Desk, making: bool) -> None:
    begun = desk.begun["/queue/begun"] = asyncio.get_running_loop().create_future()
    served = await serve()
    client, other = await served.connect(), await served.connect()
    client.write(post("/queue/begun"))
    reply = await begun
    client.reset()
    while len(served.server.server_state.connections) > 1:
        await other.ask(post("/"))
    reply(made(b"late") if making else Response(body=b"late"))
    gc.collect()
    assert (await other.ask(post("/", b"on"))).body == b"on"


async def test_a_reply_to_a_client_that_left_is_taken_back(serve: Serve, desk: Desk) -> None:
    begun = desk.begun["/queue/begun"] = asyncio.get_running_loop().create_future()
    served = await serve()
    client, other = await served.connect(), await served.connect()
    client.write(post("/queue/begun"))
    reply = await begun
    client.reset()
    while len(served.server.server_state.connections) > 1:
        await other.ask(post("/"))
    taken_back = TakenBack()
    reply(Response(body=b"leased", undelivered=taken_back))
    await taken_back.event.wait()


async def test_a_stopping_server_waits_for_what_was_begun(serve: Serve, desk: Desk) -> None:
    begun = desk.begun["/queue/begun"] = asyncio.get_running_loop().create_future()
    served = await serve()
    client, idle = await served.connect(), await served.connect()
    await idle.ask(post("/"))
    client.write(post("/queue/begun"))
    reply = await begun
    served.server.stop()
    assert await idle.at_end()
    reply(Response(body=b"begun"))
    answer = await client.read()
    assert (answer.body, answer.headers["connection"]) == (b"begun", "close")
    assert await client.at_end()
    await served.running
