"""What is refused before any body is read: over real sockets, on the fast path and by the application alike."""

from __future__ import annotations

import tracemalloc

import pytest

from penstock.domain.errors import AccessDenied
from penstock.server.admission import Admission
from penstock.server.browser_guard import BrowserGuard
from penstock.server.exchange import ConnectionLimits
from penstock.server.request_memory import ANONYMOUS_SHARE, OWN_BYTES, RequestMemory
from penstock.wire.http import Request
from tests.unit.server.serving import Client, Desk, Serve, Waiting, get, post

# uvloop holds up the signal by which a test is stopped otherwise.
pytestmark = [pytest.mark.asyncio(loop_factories=["uvloop"]), pytest.mark.timeout(60, method="thread")]
PATHS = ["/", "/stats"]
"""The first is answered on the fast path, the second by the application."""
PAGE = "https://app.example.com"
BUDGET = 4 * OWN_BYTES


def chunked(path: str, *sizes: int) -> bytes:
    """Write the head of a request and some of its chunks."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (size, b"x" * size) for size in sizes)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Host: a", "Host: b"],
        ["Host: a", "host: a"],
        ["Host: a b"],
        ["Host: user@a"],
        ["Host: a/b"],
        [f"Host: {'a' * 301}"],
        ["Host: localhost", "Transfer-Encoding: gzip, chunked"],
        ["Host: localhost", "Transfer-Encoding: identity"],
        ["Host: localhost", "Transfer-Encoding: chunked, chunked"],
        ["Host: localhost", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Host: localhost", "Transfer-Encoding: gzip"],
        ["Host: localhost", "Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Host: localhost", "Content-Length: 5", "Transfer-Encoding: chunked"],
    ],
    ids=" & ".join,
)
async def test_a_head_that_breaks_the_rules_of_http_gets_400(
    serve: Serve, desk: Desk, path: str, lines: list[str]
) -> None:
    client = await (await serve()).connect()
    answer = await client.ask("\r\n".join([f"POST {path} HTTP/1.1", *lines, "", "0\r\n\r\n"]).encode())
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert await client.at_end()
    assert desk.requests == []


async def test_a_request_of_http_1_0_needs_no_host_and_knows_no_chunks(serve: Serve) -> None:
    served = await serve()
    answer = await (await served.connect()).ask(b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nok")
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"ok", "2")
    answer = await (await served.connect()).ask(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert answer.status == 400


@pytest.mark.parametrize("path", [*PATHS, "/v1/jobs", "/healthz"])
async def test_a_web_page_is_refused_everywhere(serve: Serve, desk: Desk, path: str) -> None:
    client = await (await serve()).connect()
    for foreign in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
        answer = await client.ask(get(path, foreign))
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
    preflight = f"OPTIONS {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: {PAGE}\r\nAccess-Control-Request-Method: POST"
    assert (await client.ask(preflight.encode(), b"\r\n\r\n")).status == 403
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Origin: http://evil.example")
    assert (await client.ask(get(path, *upgrade))).status == 403
    # None of these had a body, so the connection is good for the next one.
    answer = await client.ask(post(path, b"x", "Origin: http://evil.example"))
    assert (answer.status, answer.headers["connection"]) == (403, "close")
    assert desk.requests == []


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_of_an_allowed_origin_is_answered_with_cors(serve: Serve, path: str) -> None:
    admission = Admission(guard=BrowserGuard(origins=[PAGE]))
    client = await (await serve(admission=admission)).connect()
    fields = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-amz-target")
    head = "\r\n".join([f"OPTIONS {path} HTTP/1.1", "Host: localhost", f"Origin: {PAGE}", *fields, "", ""])
    preflight = await client.ask(head.encode())
    assert (preflight.status, preflight.body) == (200, b"")
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert preflight.headers["access-control-allow-headers"] == "x-amz-target"
    for _ in range(2):
        answer = await client.ask(post(path, b"ok", f"Origin: {PAGE}", "Sec-Fetch-Site: cross-site"))
        assert answer.body.endswith(b"ok")
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["vary"] == "origin"
        other = await client.ask(post(path, b"ok"))
        assert not [name for name in other.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", PATHS)
async def test_who_is_not_known_is_refused_before_the_body_comes(serve: Serve, desk: Desk, path: str) -> None:
    def authenticate(head: Request) -> bool:
        if "authorization" not in head.headers:
            raise AccessDenied("Who are you?")
        return True

    served = await serve(admission=Admission(authenticate=authenticate))
    client = await served.connect()
    answer = await client.ask(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n".encode())
    assert (answer.status, answer.body) == (403, b"Who are you?\n")
    assert await client.at_end()
    assert desk.requests == []
    client = await served.connect()
    assert (await client.ask(post(path, b"ok", "Authorization: me"))).status == 200


async def see_taken(shared: RequestMemory, least_bytes: int, other: Client) -> None:
    """Give the server time to read what was sent, and check how much of the memory that takes."""
    for _ in range(100):
        if shared.taken_bytes >= least_bytes:
            break
        await other.ask(post("/"))
    assert shared.taken_bytes >= least_bytes


async def refuse_one_too_many(client: Client, small: Client, path: str, request: bytes) -> None:
    """Check that a request is refused while there is no memory for it, and that a small one is not."""
    answer = await client.ask(request)
    assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "1", "close")
    assert await client.at_end()
    assert (await small.ask(post(path, b"x" * OWN_BYTES))).status == 200


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_for_which_there_is_no_memory_is_refused_and_others_are_not(serve: Serve, path: str) -> None:
    shared = RequestMemory(BUDGET)
    served = await serve(admission=Admission(memory=shared))
    holding, small = await served.connect(), await served.connect()
    length = BUDGET + OWN_BYTES
    holding.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
    await small.ask(post(path))
    assert shared.taken_bytes == BUDGET
    refused = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {OWN_BYTES + 1}\r\n\r\n".encode()
    await refuse_one_too_many(await served.connect(), small, path, refused)
    await refuse_one_too_many(await served.connect(), small, path, chunked(path, OWN_BYTES, 1))
    # Whoever has been let in can finish, and makes room.
    assert (await holding.ask(b"x" * length)).status == 200
    assert (await small.ask(post(path))).status == 200
    assert shared.taken_bytes == 0
    assert (await holding.ask(post(path, b"x" * length))).status == 200


async def test_an_anonymous_caller_gets_less_of_the_memory(serve: Serve) -> None:
    admission = Admission(memory=RequestMemory(BUDGET), authenticate=lambda head: "authorization" in head.headers)
    served = await serve(admission=admission)
    size = OWN_BYTES + BUDGET // ANONYMOUS_SHARE
    assert (await (await served.connect()).ask(post("/", b"x" * (size + 1)))).status == 503
    client = await served.connect()
    assert (await client.ask(post("/", b"x" * (size + 1), "Authorization: me"))).status == 200
    assert (await client.ask(post("/", b"x" * size))).status == 200


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_in_chunks_takes_memory_as_it_grows(serve: Serve, path: str) -> None:
    shared = RequestMemory(BUDGET)
    served = await serve(admission=Admission(memory=shared))
    client = await served.connect()
    client.write(chunked(path, OWN_BYTES, BUDGET // 2))
    await (await served.connect()).ask(post(path))
    assert shared.taken_bytes == BUDGET // 2
    assert (await client.ask(b"0\r\n\r\n")).status == 200
    assert (await client.ask(post(path))).status == 200
    assert shared.taken_bytes == 0


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_leaves_gives_its_memory_back(serve: Serve, path: str) -> None:
    shared = RequestMemory(BUDGET)
    served = await serve(admission=Admission(memory=shared))
    client, other = await served.connect(), await served.connect()
    client.write(chunked(path, OWN_BYTES, BUDGET))
    await other.ask(post(path))
    assert shared.taken_bytes == BUDGET
    client.reset()
    while shared.taken_bytes:
        await other.ask(post(path))


async def test_requests_that_wait_for_their_turn_hold_their_memory(serve: Serve, desk: Desk) -> None:
    shared = RequestMemory(BUDGET)
    waiting = desk.handlers["/queue/first"] = Waiting()
    client = await (await serve(admission=Admission(memory=shared))).connect()
    client.write(post("/queue/first", b"x" * OWN_BYTES), post("/", b"x" * 1_000), post("/stats", b"x" * 2_000))
    await waiting.called.wait()
    # The heads of those that wait are counted, too.
    assert 3_000 < shared.taken_bytes < 3_300
    waiting.go_on.set()
    for _ in range(3):
        await client.read()
    assert (await client.ask(post("/"))).status == 200
    assert shared.taken_bytes == 0


async def test_a_head_that_comes_in_pieces_is_counted(serve: Serve) -> None:
    shared = RequestMemory(0)
    client = await (await serve(admission=Admission(memory=shared))).connect()
    client.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nX: ")
    for _ in range(OWN_BYTES // 1_000 + 1):
        client.write(b"x" * 1_000)
        await client.writer.drain()
    assert (await client.read()).status == 503


@pytest.mark.parametrize("path", PATHS)
async def test_a_trailer_is_counted(serve: Serve, path: str) -> None:
    shared = RequestMemory(BUDGET)
    served = await serve(admission=Admission(memory=shared))
    client, other = await served.connect(), await served.connect()
    client.write(chunked(path, 10))
    await other.ask(post(path))
    client.write(b"0\r\nX: ", b"x" * (OWN_BYTES + 1_000))
    await see_taken(shared, 1_000, other)
    assert (await client.ask(b"\r\n\r\n")).status == 200
    assert (await client.ask(post(path))).status == 200
    assert shared.taken_bytes == 0
    client.write(chunked(path, 10), b"0\r\nX: ", b"x" * 2 * BUDGET)
    assert (await client.read()).status == 503


@pytest.mark.parametrize("path", PATHS)
async def test_a_trailer_may_be_as_large_as_a_head(serve: Serve, path: str) -> None:
    served = await serve(limits=ConnectionLimits(head_bytes_max=1_000))
    client, other = await served.connect(), await served.connect()
    # A chunk is no trailer, however large it is and wherever it is cut.
    for part in (chunked(path, 5_000), b"1388\r\n", b"x" * 5_000, b"\r\n0\r\nX: ", b"x" * 900):
        client.write(part)
        for _ in range(3):
            await other.ask(post("/"))
    assert (await client.ask(b"\r\n\r\n")).status == 200
    client.write(chunked(path, 10) + b"0\r\nX: ")
    for _ in range(3):
        await other.ask(post("/"))
    client.write(b"x" * 1_100)
    for _ in range(3):
        await other.ask(post("/"))
    assert (await client.ask(b"\r\n\r\n")).status == 431


async def test_a_trailer_that_comes_after_the_answer_is_counted_and_given_back(serve: Serve) -> None:
    shared = RequestMemory(BUDGET)
    served = await serve(admission=Admission(memory=shared))
    client, other = await served.connect(), await served.connect()
    assert (await client.ask(chunked("/early", OWN_BYTES + 500))).status == 200
    assert shared.taken_bytes == 0
    client.write(b"0\r\nX: ", b"x" * (OWN_BYTES + 1_000))
    await see_taken(shared, 1_000, other)
    client.write(b"\r\n\r\n")
    assert (await client.ask(post("/stats"))).body == b"/stats "
    assert shared.taken_bytes == 0


@pytest.mark.parametrize("before", [b"", chunked("/", 10) + b"0\r\n"], ids=["head", "trailer"])
async def test_many_small_headers_are_refused(serve: Serve, before: bytes) -> None:
    client = await (await serve()).connect()
    lines = b"".join(b"x%d:\r\n" % number for number in range(300))
    answer = await client.ask(before or b"POST / HTTP/1.1\r\nHost: localhost\r\n", lines, b"\r\n")
    assert (answer.status, answer.headers["connection"]) == (431, "close")


async def test_many_small_chunks_take_no_more_memory_than_they_hold(serve: Serve) -> None:
    shared = RequestMemory(BUDGET)
    served = await serve(admission=Admission(memory=shared))
    client, other = await served.connect(), await served.connect()
    number = (OWN_BYTES + BUDGET) // 2
    sent = chunked("/", *[2] * number)
    tracemalloc.start()
    try:
        client.write(sent)
        await see_taken(shared, BUDGET, other)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 8 * number
    answer = await client.ask(b"0\r\n\r\n")
    assert (answer.status, answer.body) == (200, b"x" * 2 * number)


async def test_a_head_in_pieces_behind_a_finished_request_is_counted(serve: Serve, desk: Desk) -> None:
    shared = RequestMemory(BUDGET)
    waiting = desk.handlers["/queue/first"] = Waiting()
    client = await (await serve(admission=Admission(memory=shared))).connect()
    client.write(post("/queue/first") + b"POST / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (OWN_BYTES + 1_000))
    await waiting.called.wait()
    assert shared.taken_bytes > 1_000
    waiting.go_on.set()
    await client.read()
    assert (await client.ask(b"\r\n\r\n")).status == 200
    assert shared.taken_bytes == 0


async def test_a_chunk_too_many_behind_other_requests_is_refused_in_its_turn(serve: Serve, desk: Desk) -> None:
    waiting = desk.handlers["/queue/first"] = Waiting()
    client = await (await serve(admission=Admission(memory=RequestMemory(0)))).connect()
    client.write(post("/queue/first"))
    await waiting.called.wait()
    client.write(chunked("/stats", OWN_BYTES, 1))
    await client.writer.drain()
    waiting.go_on.set()
    assert (await client.read()).body == b"waited"
    assert (await client.read()).status == 503
    assert await client.at_end()


async def test_a_connection_too_many_is_refused_with_a_reason(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = await serve(admission=Admission(connections_max=2))
    clients = [await served.connect() for _ in range(2)]
    for client in clients:
        assert (await client.ask(post("/"))).status == 200
    for _ in range(3):
        client = await served.connect()
        answer = await client.ask(post("/", b"x" * 1_000_000))
        assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "1", "close")
        assert answer.body == b"There are 2 connections already.\n"
        assert await client.at_end()
    assert caplog.text.count("Connections were refused") == 2
    assert (await clients[0].ask(post("/"))).status == 200
    await clients[0].close()
    while (await (client := await served.connect()).ask(post("/"))).status == 503:
        assert await client.at_end()


async def test_of_many_connections_too_many_each_still_gets_the_answer(serve: Serve) -> None:
    admission = Admission(connections_max=1)
    served = await serve(admission=admission)
    await (await served.connect()).ask(post("/"))
    crowd = [await served.connect() for _ in range(300)]
    assert [(await client.read()).status for client in crowd] == [503] * 300
    for client in crowd:
        await client.close()
    while admission.lingering:
        client = await served.connect()
        await client.at_end()
        await client.close()
