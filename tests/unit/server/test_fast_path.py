"""SQS requests over real sockets: order, limits, and what does not look like a request."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from penstock.server.exchange import ConnectionLimits
from penstock.wire.http import Request, Response
from tests.unit.server.serving import Desk, Serve, Waiting, get, post

# uvloop holds up the signal by which a test is stopped otherwise.
pytestmark = [pytest.mark.asyncio(loop_factories=["uvloop"]), pytest.mark.timeout(60, method="thread")]
KEYS = Path(__file__).parent / "tls"


async def test_a_request_reaches_the_endpoint_as_it_was_sent(serve: Serve, desk: Desk) -> None:
    client = await (await serve()).connect()
    await client.ask(
        post("/queue/a%20b?x=1&y=%2F", b"{}", "X-Amz-Target: AmazonSQS.SendMessage", "X-Two: a", "x-two: b")
    )
    [request] = desk.requests
    assert request == Request(
        "POST",
        "/queue/a%20b",
        "x=1&y=%2F",
        {
            "host": "localhost",
            "content-length": "2",
            "x-amz-target": "AmazonSQS.SendMessage",
            "x-two": "a,b",
        },
        b"{}",
    )


async def test_an_answer_reaches_the_client_as_it_was_given(serve: Serve, desk: Desk) -> None:
    async def refuse(request: Request) -> Response:
        return Response(status=400, headers=[("x-amzn-RequestId", "1")], body=b"no")

    desk.handlers["/"] = refuse
    client = await (await serve()).connect()
    answer = await client.ask(post("/"))
    assert (answer.status, answer.body, answer.headers["x-amzn-requestid"]) == (400, b"no", "1")
    assert "connection" not in answer.headers


@pytest.mark.parametrize(
    ("request_bytes", "fast"),
    [
        (post("/"), True),
        (get("/?Action=ListQueues"), True),
        (post("/000000000000/orders"), True),
        (get("/000000000000/orders?Action=SendMessage"), True),
        (post("/queue/orders"), True),
        (post("/anything", b"", "X-Amz-Target: AmazonSQS.ListQueues"), True),
        (b"POST http://localhost:9324/queue/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", True),
        (b"POST http://localhost:9324 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", True),
        (get("/healthz"), False),
        (get("/v1/queues"), False),
        (post("/_penstock/clock/advance"), False),
        (b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", False),
    ],
)
async def test_sqs_requests_are_told_from_others(serve: Serve, desk: Desk, request_bytes: bytes, fast: bool) -> None:
    client = await (await serve()).connect()
    answer = await client.ask(request_bytes)
    assert answer.status == 200
    assert bool(desk.requests) == fast == ("x-by" not in answer.headers)


async def test_a_connection_is_kept_for_the_next_request(serve: Serve) -> None:
    client = await (await serve()).connect()
    for number in range(5):
        assert (await client.ask(post("/", b"%d" % number))).body == b"%d" % number
        assert (await client.ask(get("/healthz"))).headers["x-by"] == "asgi"


@pytest.mark.parametrize(
    "request_bytes",
    [post("/", b"", "Connection: close"), b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"],
    ids=["asked for", "HTTP/1.0"],
)
async def test_a_connection_is_closed_after_the_answer(serve: Serve, desk: Desk, request_bytes: bytes) -> None:
    client = await (await serve()).connect()
    answer = await client.ask(request_bytes + post("/"))
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await client.at_end()
    assert len(desk.requests) == 1


async def test_pipelined_requests_are_answered_in_order(serve: Serve, desk: Desk) -> None:
    waiting = desk.handlers["/queue/first"] = Waiting()
    client = await (await serve()).connect()
    client.write(post("/queue/first"), get("/healthz"), post("/", b"2"), get("/stats"), post("/", b"3"))
    await waiting.called.wait()
    assert len(desk.requests) == 1
    waiting.go_on.set()
    answers = [(await client.read()).body for _ in range(5)]
    assert answers == [b"waited", b"/healthz ", b"2", b"/stats ", b"3"]


async def test_a_client_that_sends_far_ahead_is_held_back_and_gets_every_answer(serve: Serve, desk: Desk) -> None:
    waiting = desk.handlers["/queue/first"] = Waiting()
    client = await (await serve()).connect()
    bodies = [b"%d " % number * 5_000 for number in range(400)]
    client.write(post("/queue/first"))
    for body in bodies:
        client.write(post("/", body))
    await waiting.called.wait()
    sending = asyncio.create_task(client.writer.drain())
    assert len(desk.requests) == 1
    waiting.go_on.set()
    assert (await client.read()).body == b"waited"
    for body in bodies:
        assert (await client.read()).body == body
    await sending


async def test_a_head_that_begins_behind_many_requests_is_not_taken_for_a_large_one(serve: Serve) -> None:
    served = await serve(limits=ConnectionLimits(head_bytes_max=1_000))
    client = await served.connect()
    await client.ask(post("/"))
    [connection] = served.server.server_state.connections
    behind = post("/", b"behind")
    # As one read may give it: whole requests, and of the next one a part of its head.
    connection.data_received(post("/", b"x" * 900) * 2 + behind[:20])
    connection.data_received(behind[20:])
    assert [(await client.read()).body for _ in range(3)] == [b"x" * 900, b"x" * 900, b"behind"]


async def test_a_body_in_chunks_is_put_together(serve: Serve) -> None:
    client = await (await serve()).connect()
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await client.ask(head, b"3\r\nabc\r\n", b"2\r\nde\r\n", b"0\r\nX-Trailer: 1\r\n\r\n")
    assert answer.body == b"abcde"


async def test_a_body_that_comes_in_pieces_is_waited_for(serve: Serve, desk: Desk) -> None:
    client = await (await serve()).connect()
    for byte in post("/", b"piece by piece"):
        client.write(bytes([byte]))
        await client.writer.drain()
    assert (await client.read()).body == b"piece by piece"


async def test_too_large_a_body_is_refused_before_it_is_sent(serve: Serve, desk: Desk) -> None:
    served = await serve(limits=ConnectionLimits(body_bytes_max=1_000))
    client = await served.connect()
    answer = await client.ask(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n")
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert answer.body == b"The request is larger than 1000 bytes.\n"
    assert await client.at_end()
    assert desk.requests == []


async def test_a_client_that_sends_too_large_a_body_anyway_still_finds_the_answer(serve: Serve) -> None:
    client = await (await serve()).connect()
    client.write(post("/", b"x" * 6_000_000))
    assert (await client.read()).status == 413
    assert await client.at_end()


async def test_a_client_that_never_stops_sending_what_was_refused_is_cut_off(serve: Serve) -> None:
    served = await serve(limits=ConnectionLimits(body_bytes_max=1_000, linger_bytes_max=100_000))
    client = await served.connect()
    client.write(post("/", b"x" * 10_000_000))
    with pytest.raises(ConnectionError):
        await client.writer.drain()


async def test_too_large_a_body_in_chunks_is_refused(serve: Serve, desk: Desk) -> None:
    served = await serve(limits=ConnectionLimits(body_bytes_max=1_000))
    client = await served.connect()
    client.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    client.write(b"1f4\r\n" + b"x" * 500 + b"\r\n", b"1f5\r\n" + b"x" * 501 + b"\r\n")
    assert (await client.read()).status == 413
    assert desk.requests == []


async def test_endless_trailers_are_refused(serve: Serve, desk: Desk) -> None:
    served = await serve(limits=ConnectionLimits(body_bytes_max=1_000, wire_bytes_max=10_000))
    client = await served.connect()
    client.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ")
    for _ in range(20):
        client.write(b"x" * 1_000)
        await client.writer.drain()
    assert (await client.read()).status == 413
    assert desk.requests == []


async def test_endless_headers_are_refused(serve: Serve, desk: Desk) -> None:
    served = await serve(limits=ConnectionLimits(head_bytes_max=10_000))
    client = await served.connect()
    client.write(b"POST / HTTP/1.1\r\n")
    for _ in range(20):
        client.write(b"X: ", b"x" * 1_000, b"\r\n")
        await client.writer.drain()
    assert (await client.read()).status == 431
    assert desk.requests == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"hello\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_what_is_no_request_gets_400_after_the_answers_before_it(
    serve: Serve, desk: Desk, garbage: bytes
) -> None:
    waiting = desk.handlers["/queue/first"] = Waiting()
    client = await (await serve()).connect()
    client.write(post("/queue/first"), garbage)
    await waiting.called.wait()
    waiting.go_on.set()
    assert (await client.read()).body == b"waited"
    answer = await client.read()
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert await client.at_end()
    assert len(desk.requests) == 1


async def test_a_broken_body_for_the_application_gets_400(serve: Serve) -> None:
    client = await (await serve()).connect()
    answer = await client.ask(b"POST /stats HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert await client.at_end()


async def test_a_client_that_asks_whether_to_go_on_is_told_to(serve: Serve) -> None:
    client = await (await serve()).connect()
    client.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert (await client.read()).status == 100
    assert (await client.ask(b"ok")).body == b"ok"


async def test_a_wish_for_another_protocol_is_passed_over(serve: Serve) -> None:
    client = await (await serve()).connect()
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    client.write(post("/", b"1", *upgrade), post("/", b"22", *upgrade), post("/stats", b"3", *upgrade), post("/", b"4"))
    assert [(await client.read()).body for _ in range(4)] == [b"1", b"22", b"/stats 3", b"4"]
    for byte in post("/", b"piece by piece", *upgrade):
        client.write(bytes([byte]))
        await client.writer.drain()
    assert (await client.read()).body == b"piece by piece"


async def test_a_wish_for_another_protocol_with_a_body_in_chunks_is_refused(serve: Serve) -> None:
    client = await (await serve()).connect()
    upgrade = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await client.ask(upgrade, b"0\r\n\r\n")).status == 400


async def test_a_bug_costs_one_answer_and_shows_nothing_of_itself(
    serve: Serve, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: Request) -> Response:
        raise RuntimeError("a secret")

    async def inject(request: Request) -> Response:
        return Response(headers=[("x", "1\r\ny: 2")])

    desk.handlers["/queue/fail"] = fail
    desk.handlers["/queue/inject"] = inject
    client = await (await serve()).connect()
    for path in ("/queue/fail", "/queue/inject"):
        answer = await client.ask(post(path, b"", "Authorization: hunter2"))
        assert (answer.status, answer.body) == (500, b"The server failed.\n")
        assert path in caplog.text
    assert "hunter2" not in caplog.text
    assert (await client.ask(post("/", b"on"))).body == b"on"


async def test_tls_serves_both_paths(serve: Serve, desk: Desk) -> None:
    certificate, key = str(KEYS / "certificate.pem"), str(KEYS / "key.pem")
    served = await serve(tls=(certificate, key))
    client = await served.connect(tls=ssl.create_default_context(cafile=certificate))
    body = b"x" * 1_500_000
    assert (await client.ask(post("/", body))).body == body
    assert (await client.ask(get("/healthz"))).body == b"/healthz "
