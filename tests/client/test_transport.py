"""What the transport does with servers that do not answer as they should."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock, errors
from penstock.client import calls
from penstock.client.transport import asynchronous, blocking, http1
from tests.client.faces import face_of
from tests.client.peers import LastBytes, ScriptedServer, answer, problem
from tests.end_to_end.running import RunningServer

QUEUE = (
    b'{"name":"mail","paused":false,"revision":1,"created_at_ms":1,"settings":{},'
    b'"counts":{},"depth":0,"oldest_due_ms":null}'
)
FIRST_TRY = b"penstock-first-try: true"
LONG_S = 20.0


@pytest.fixture(params=["async", "sync"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat at once."""
    monkeypatch.setattr(calls, "BACKOFF_S", 0.0)


async def test_a_lost_answer_is_asked_for_again_with_the_same_body(face: str) -> None:
    stored = b'{"id":"x","queue":"mail","state":"queued"}'
    with ScriptedServer(lambda _, count: None if count < 3 else answer(stored, "202 Accepted")) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            assert (await face_of(app, face).jobs.enqueue("mail", "greet", {"to": "ada"})).id == "x"
    assert len(server.requests) == 4
    assert len({sent.partition(b"\r\n\r\n")[2] for sent in server.requests}) == 1
    assert [FIRST_TRY in sent for sent in server.requests] == [True, False, False, False]


async def test_an_id_that_the_caller_gives_may_be_known_already(face: str) -> None:
    stored = b'{"id":"x","queue":"mail","state":"queued"}'
    with ScriptedServer(lambda *_: answer(stored, "202 Accepted")) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            await face_of(app, face).jobs.enqueue("mail", "greet", id="x")
    assert [FIRST_TRY in sent for sent in server.requests] == [False]


@pytest.mark.parametrize(
    "busy",
    [
        problem("overloaded", "503 Service Unavailable"),
        problem("store-unavailable", "503 Service Unavailable"),
        answer(b"<html>Bad Gateway</html>", "502 Bad Gateway"),
        problem("idempotency-key-busy", "409 Conflict"),
    ],
    ids=["overloaded", "store", "proxy", "key"],
)
async def test_what_was_not_done_yet_is_asked_for_again(face: str, busy: bytes) -> None:
    with ScriptedServer(lambda _, count: busy if count < 2 else answer(QUEUE)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            assert (await face_of(app, face).queues.get("mail")).name == "mail"
    assert len(server.requests) == 3


async def test_too_many_is_asked_for_again_only_if_wanted(face: str) -> None:
    full = problem("too-many", "429 Too Many Requests", ',"reason":"queue_full","retry_after_ms":1')
    stored = answer(b'{"id":"x","queue":"mail","state":"queued"}', "202 Accepted")
    with ScriptedServer(lambda _, count: full if count < 2 else stored) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            with pytest.raises(errors.TooMany) as refused:
                await face_of(app, face).jobs.enqueue("mail", "greet")
            assert (refused.value.reason, refused.value.retry_after) == ("queue_full", 0.001)
            assert (await face_of(app, face).jobs.enqueue("mail", "greet", retry_too_many=True)).id == "x"
    assert len(server.requests) == 3


async def test_the_last_error_is_raised_when_the_time_is_up(face: str) -> None:
    with ScriptedServer(
        lambda _, __: problem("overloaded", "503 Service Unavailable", ',"retry_after_ms":60000')
    ) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            with pytest.raises(errors.Overloaded):
                await face_of(app, face).queues.get("mail")
    async with Penstock(server.url, timeout=0.05) as app:
        with pytest.raises(errors.ConnectionFailed, match="refused") as failed:
            await face_of(app, face).queues.get("mail")
    assert isinstance(failed.value, ConnectionError)


async def test_a_server_that_was_never_reached_is_given_up_soon(face: str) -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server:
        pass
    async with Penstock(server.url, timeout=3_600, connect_timeout=0.05) as app:
        with pytest.raises(errors.ConnectionFailed, match="refused"):
            await face_of(app, face).queues.get("mail")
        with pytest.raises(errors.ConnectionFailed, match="refused"):
            await anext(aiter(face_of(app, face).jobs.follow("id")))


async def test_a_server_that_was_reached_is_looked_for_until_the_deadline(
    face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "BACKOFF_S", 0.05)
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server:
        async with Penstock(server.url, timeout=LONG_S, connect_timeout=0.0) as app:
            await face_of(app, face).queues.get("mail")
            server.__exit__()
            with pytest.raises(errors.ConnectionFailed) as failed:
                await face_of(app, face).queues.get("mail", timeout=0.5)
    assert "refused" in str(failed.value), "it was dialled again, after the connection was lost"


async def test_a_silent_server_exceeds_the_deadline(face: str) -> None:
    with ScriptedServer(lambda _, __: b"") as server:
        async with Penstock(server.url) as app:
            with pytest.raises(errors.DeadlineExceeded) as late:
                await face_of(app, face).queues.get("mail", timeout=0.05)
    assert isinstance(late.value, TimeoutError)


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [
        (b"garbage\r\n\r\n", "not HTTP"),
        (answer(b"<html>Welcome</html>"), "not one of the job API"),
        (answer(b"<html>Not Found</html>", "404 Not Found"), "without a problem"),
        (answer(b"", "302 Found", "location: https://elsewhere"), "without a problem"),
        (answer(b'{"name": "mail"}'), "not one of the job API"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000, "head of the answer is too large"),
    ],
    ids=["garbage", "html", "html-404", "redirect", "shape", "head"],
)
async def test_an_answer_that_is_none_is_an_error_at_once(face: str, bytes_: bytes, said: str) -> None:
    with ScriptedServer(lambda _, __: bytes_) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            with pytest.raises(errors.AnswerInvalid, match=said):
                await face_of(app, face).queues.get("mail")
    assert len(server.requests) == 1


async def test_an_answer_may_have_a_bounded_size(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "ANSWER_BYTES_MAX", 100)
    with ScriptedServer(lambda _, __: answer(b"x" * 101)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            with pytest.raises(errors.AnswerInvalid, match="larger than 100 bytes"):
                await face_of(app, face).queues.get("mail")


async def test_a_cut_answer_is_asked_for_again(face: str) -> None:
    whole = answer(QUEUE)
    with ScriptedServer(lambda _, count: LastBytes(whole[:-10]) if count == 0 else whole) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            assert (await face_of(app, face).queues.get("mail")).name == "mail"


async def test_a_continuation_is_passed_over(face: str) -> None:
    with ScriptedServer(lambda _, __: b"HTTP/1.1 100 Continue\r\n\r\n" + answer(QUEUE)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            for _ in range(2):
                assert (await face_of(app, face).queues.get("mail")).name == "mail"
    assert server.connections == 1


async def test_a_deleted_queue_is_gone_on_a_repeat(face: str) -> None:
    gone = problem("queue-not-found", "404 Not Found")
    with ScriptedServer(lambda _, count: None if count == 0 else gone) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            assert await face_of(app, face).queues.delete("mail") is None
            with pytest.raises(errors.QueueNotFound):
                await face_of(app, face).queues.delete("mail")


async def test_a_lost_lease_means_released_on_a_repeat(face: str) -> None:
    lost = problem("lease-lost", "409 Conflict")
    with ScriptedServer(lambda _, count: None if count == 0 else lost) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            assert await face_of(app, face).work.release("token") is None
            with pytest.raises(errors.LeaseLost):
                await face_of(app, face).work.release("token")


async def test_a_lost_lease_means_released_on_a_repeat_of_reports(face: str) -> None:
    entry = b'{"status":409,"problem":{"type":"urn:penstock:problem:lease-lost","title":"t","status":409}}'
    both = answer(b'{"results":[%b,%b]}' % (entry, entry))
    with ScriptedServer(lambda _, count: None if count == 0 else both) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            reports = [{"do": "release", "token": "a"}, {"do": "complete", "token": "b"}]
            assert [entry.status for entry in await face_of(app, face).work.report(reports)] == [200, 409]


async def test_a_repeated_long_poll_waits_for_what_is_left(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = answer(b'{"offers":[],"drain":false}')
    with ScriptedServer(lambda _, count: None if count == 0 else offers) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            await face_of(app, face).work.dequeue(["mail"], wait=20)
    first, second = (request.partition(b"\r\n\r\n")[2] for request in server.requests)
    assert b'"wait_ms":20000' in first
    assert b'"wait_ms":20000' not in second
    assert first.partition(b'"wait_ms"')[0] == second.partition(b'"wait_ms"')[0]


async def test_connections_are_used_again(face: str) -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            for _ in range(5):
                await face_of(app, face).queues.get("mail")
            assert server.connections == 1
        assert server.ended.acquire(timeout=LONG_S)


async def test_a_connection_that_the_server_closes_is_not_used_again(face: str) -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE, "200 OK", "connection: close")) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            for _ in range(3):
                await face_of(app, face).queues.get("mail")
    assert server.connections == 3


async def test_the_pool_of_an_event_loop_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous, "CONNECTIONS_MAX", 3)
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            await asyncio.gather(*(app.queues.get("mail") for _ in range(20)))
    assert server.connections <= 3


async def test_a_call_that_gets_no_turn_exceeds_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous, "CONNECTIONS_MAX", 1)
    with ScriptedServer(lambda _, count: b"" if count == 0 else answer(QUEUE)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            first = asyncio.create_task(app.queues.get("mail"))
            await asyncio.to_thread(server.asked.acquire, timeout=LONG_S)
            with pytest.raises(errors.DeadlineExceeded, match="under way"):
                await app.queues.get("mail", timeout=0.01)
            first.cancel()
            await asyncio.wait((first,))
            assert (await app.queues.get("mail")).name == "mail"


def test_idle_connections_of_threads_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "IDLE_MAX", 2)
    together = threading.Barrier(5)

    def wait_for_all(_: bytes, count: int) -> bytes:
        if count < 5:
            together.wait(LONG_S)
        return answer(QUEUE)

    with ScriptedServer(wait_for_all) as server, Penstock(server.url, timeout=LONG_S) as app:
        threads = [threading.Thread(target=app.sync.queues.get, args=("mail",)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.connections == 5
        for _ in range(3):
            assert server.ended.acquire(timeout=LONG_S)


async def test_another_address_is_used_when_one_fails(face: str) -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE)) as second:
        with ScriptedServer(lambda _, __: answer(QUEUE)) as first:
            async with Penstock(f"{first.url},{second.url}", timeout=LONG_S) as app:
                await face_of(app, face).queues.get("mail")
                assert (first.connections, second.connections) == (1, 0)
                first.__exit__()
                for _ in range(3):
                    await face_of(app, face).queues.get("mail")
        assert second.connections == 1


async def test_another_address_is_used_when_one_has_too_much_to_do(face: str) -> None:
    with (
        ScriptedServer(lambda _, __: problem("overloaded", "503 Service Unavailable")) as first,
        ScriptedServer(lambda _, __: answer(QUEUE)) as second,
    ):
        async with Penstock(f"{first.url},{second.url}", timeout=LONG_S) as app:
            await face_of(app, face).queues.get("mail")
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_another_address_is_used_when_one_is_silent(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "TRY_S", 0.05)
    with ScriptedServer(lambda _, __: b"") as first, ScriptedServer(lambda _, __: answer(QUEUE)) as second:
        async with Penstock(f"{first.url},{second.url}", timeout=LONG_S) as app:
            await face_of(app, face).queues.get("mail")
    assert len(second.requests) == 1


async def test_a_unix_socket_is_dialled(face: str, tmp_path: Path) -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE), path=tmp_path / "s.sock") as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            assert (await face_of(app, face).queues.get("mail")).name == "mail"
    assert b"host: localhost\r\n" in server.requests[0]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that is its own authority, with its key."""
    made = tmp_path_factory.mktemp("tls") / "localhost.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(made), "-out", f"{made}.crt"),
        ],
        check=True,
        capture_output=True,
    )
    made.write_text(made.read_text() + Path(f"{made}.crt").read_text())
    return made


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[ScriptedServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with ScriptedServer(lambda _, __: answer(QUEUE), tls=context) as server:
        yield server


async def test_tls_checks_the_certificate(face: str, tls_server: ScriptedServer, certificate: Path) -> None:
    async with Penstock(tls_server.url, ca_file=f"{certificate}.crt", timeout=LONG_S) as app:
        for _ in range(2):
            assert (await face_of(app, face).queues.get("mail")).name == "mail"
    assert tls_server.connections == 1
    async with Penstock(tls_server.url, timeout=LONG_S) as app:
        with pytest.raises(errors.NotTrusted):
            await face_of(app, face).queues.get("mail")
    other_name = tls_server.url.replace("localhost", "127.0.0.1")
    async with Penstock(other_name, ca_file=f"{certificate}.crt", timeout=LONG_S) as app:
        with pytest.raises(errors.NotTrusted):
            await face_of(app, face).queues.get("mail")


def test_authorities_that_cannot_be_read_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(errors.NotTrusted, match="nowhere"):
        Penstock("https://localhost", ca_file=tmp_path / "nowhere")


async def test_a_token_is_sent_and_never_shown(face: str) -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server:
        async with Penstock(server.url, token="secret-token", timeout=LONG_S) as app:
            await face_of(app, face).queues.get("mail")
            assert "secret" not in repr(app)
            assert "secret" not in repr(vars(app))
    assert b"authorization: Bearer secret-token\r\n" in server.requests[0]


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ümlaut"])
def test_a_token_that_cannot_be_sent_is_refused(token: str) -> None:
    with pytest.raises(errors.TokenInvalid) as refused:
        Penstock("http://localhost", token=token)
    assert not token or token not in str(refused.value)


async def test_a_token_file_is_read_again_when_it_changes(face: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    def guarded(request: bytes, _: int) -> bytes:
        if b"Bearer new\r\n" in request:
            return answer(QUEUE)
        return problem("not-authenticated", "401 Unauthorized")

    with ScriptedServer(guarded) as server:
        async with Penstock(server.url, token_file=file, timeout=LONG_S) as app:
            with pytest.raises(errors.NotAuthenticated):
                await face_of(app, face).queues.get("mail")
            (tmp_path / "next").write_text("new\n")
            (tmp_path / "next").replace(file)
            assert (await face_of(app, face).queues.get("mail")).name == "mail"
            file.unlink()
            assert (await face_of(app, face).queues.get("mail")).name == "mail"


def test_a_token_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    app = Penstock("http://127.0.0.1:9", token_file=tmp_path / "none")
    with pytest.raises(errors.TokenInvalid, match="none"):
        app.sync.queues.list()
    with pytest.raises(errors.TokenInvalid, match="not both"):
        Penstock("http://localhost", token="a", token_file=tmp_path / "none")


def test_a_child_uses_no_connection_of_its_parent() -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server, Penstock(server.url, timeout=LONG_S) as app:
        app.sync.queues.get("mail")
        child = os.fork()
        if child == 0:
            ok = False
            try:
                ok = app.sync.queues.get("mail").name == "mail"
            finally:
                os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.connections == 2
        app.sync.queues.get("mail")
        assert server.connections == 2


def test_a_child_uses_no_connection_of_an_event_loop_of_its_parent() -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server, asyncio.Runner() as runner:
        app = Penstock(server.url, timeout=LONG_S)
        runner.run(app.queues.get("mail"))
        child = os.fork()
        if child == 0:
            ok = False
            try:
                ok = asyncio.run(app.queues.get("mail")).name == "mail"
            finally:
                os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.connections == 2
        runner.run(app.queues.get("mail"))
        assert server.connections == 2
        runner.run(app.aclose())


def test_each_event_loop_has_connections_of_its_own_which_end_with_it() -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server:
        app = Penstock(server.url, timeout=LONG_S)
        for count in (1, 2):
            asyncio.run(app.queues.get("mail"))
            assert server.connections == count
            assert server.ended.acquire(timeout=LONG_S)


async def test_a_call_that_is_cancelled_closes_its_connection() -> None:
    with ScriptedServer(lambda _, count: b"" if count == 0 else answer(QUEUE)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            call = asyncio.create_task(app.queues.get("mail"))
            await asyncio.to_thread(server.asked.acquire, timeout=LONG_S)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await app.queues.get("mail")).name == "mail"
    assert server.connections == 2


async def test_a_connection_that_ended_while_idle_costs_no_pause(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BACKOFF_S", 1_000.0)
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            await face_of(app, face).queues.get("mail")
            server.hang_up()
            assert (await face_of(app, face).queues.get("mail")).name == "mail"


def chunk(text: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(text), text)


STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def _event(seq: int, kind: str = "progress") -> bytes:
    data = b'{"seq":%d,"attempt":1,"kind":"%b","data":null,"at_ms":1}' % (seq, kind.encode())
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, kind.encode(), data)


async def test_events_go_on_after_the_last_one_seen(face: str) -> None:
    def script(request: bytes, count: int) -> bytes:
        if count == 0:
            return LastBytes(STREAM + chunk(_event(1) + b": keep-alive\n\n" + _event(2)[:20]))
        assert b"after=1 " in request
        return STREAM + chunk(_event(2)) + chunk(_event(3) + b'event: end\ndata: {"state":"succeeded"}\n\n')

    with ScriptedServer(script) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            assert [event.seq async for event in face_of(app, face).jobs.follow("id")] == [1, 2, 3]


async def test_a_stream_that_falls_silent_is_opened_anew(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.client.sync import caller as sync_caller  # noqa: PLC0415
    from penstock.client.verbs import caller  # noqa: PLC0415

    monkeypatch.setattr(caller, "SILENCE_S", 0.1)
    monkeypatch.setattr(sync_caller, "SILENCE_S", 0.1)
    end = b'event: end\ndata: {"state":"dead"}\n\n'
    with ScriptedServer(lambda _, count: STREAM + (chunk(_event(1)) if count == 0 else chunk(end))) as server:
        async with Penstock(server.url, timeout=LONG_S) as app:
            assert [event.seq async for event in face_of(app, face).jobs.follow("id")] == [1]
    assert len(server.requests) == 2


async def test_a_stream_of_offers_keeps_its_request_id_when_it_is_opened_anew(face: str) -> None:
    def script(_: bytes, count: int) -> bytes:
        return STREAM + chunk(b'{"stream":"s%d"}\n' % count) + chunk(b'{"drain":true}\n') + b"0\r\n\r\n"

    with ScriptedServer(script) as server:
        async with Penstock(server.url, timeout=LONG_S) as app, face_of(app, face).work.stream(["mail"]) as stream:
            lines = aiter(stream)
            read = [await anext(lines) for _ in range(4)]
    assert [line.stream for line in read] == ["s0", None, "s1", None]
    assert [line.drain for line in read] == [False, True, False, True]
    assert server.requests[0] == server.requests[1]
    assert b'"request_id"' in server.requests[0]


async def test_one_name_is_no_list_of_queues(face: str) -> None:
    app = Penstock("http://127.0.0.1:9")
    with pytest.raises(TypeError, match=r"\['mail'\]"):
        await face_of(app, face).work.dequeue("mail")
    with pytest.raises(TypeError, match=r"\['mail'\]"):
        face_of(app, face).work.stream("mail")


async def test_a_stream_that_is_refused_says_why(face: str) -> None:
    with ScriptedServer(lambda _, __: problem("access-denied", "403 Forbidden")) as server:
        async with Penstock(server.url, timeout=LONG_S) as app, face_of(app, face).work.stream(["mail"]) as stream:
            with pytest.raises(errors.AccessDenied):
                await anext(aiter(stream))


async def test_a_problem_in_a_stream_is_raised(face: str) -> None:
    line = b'{"problem":{"type":"urn:penstock:problem:queue-not-found","title":"t","status":404}}\n'
    with ScriptedServer(lambda _, __: STREAM + chunk(line)) as server:
        async with Penstock(server.url, timeout=LONG_S) as app, face_of(app, face).work.stream(["mail"]) as stream:
            with pytest.raises(errors.QueueNotFound):
                await anext(aiter(stream))


async def test_a_stream_that_is_no_json_is_an_error(face: str) -> None:
    with ScriptedServer(lambda _, __: STREAM + chunk(b"<html>\n")) as server:
        async with Penstock(server.url, timeout=LONG_S) as app, face_of(app, face).work.stream(["mail"]) as stream:
            with pytest.raises(errors.AnswerInvalid):
                await anext(aiter(stream))


def test_sync_calls_on_a_running_loop_are_refused() -> None:
    app = Penstock("http://127.0.0.1:9")

    async def wrong() -> None:
        app.sync.queues.list()

    with pytest.raises(errors.WrongThread, match="event loop"):
        asyncio.run(wrong())


async def test_a_closed_client_takes_no_calls(face: str) -> None:
    with ScriptedServer(lambda _, __: answer(QUEUE)) as server:
        app = Penstock(server.url)
        await face_of(app, face).queues.get("mail")
        await app.aclose()
        with pytest.raises(errors.Closed):
            await face_of(app, face).queues.get("mail")


def test_a_server_name_that_does_not_exist_is_told() -> None:
    app = Penstock("http://no-such-host.invalid", timeout=0.01)
    with pytest.raises(errors.ConnectionFailed, match=r"no-such-host\.invalid"):
        app.sync.queues.list()


async def test_calls_that_wait_on_the_server_hold_up_no_others(
    sqlite_server: RunningServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asynchronous, "CONNECTIONS_MAX", 1)
    async with Penstock(sqlite_server.url) as app:
        polls = [asyncio.create_task(app.work.dequeue([name], wait=20)) for _ in range(3)]
        await app.workers.list()
        await app.jobs.enqueue(name, "greet")
        done, waiting = await asyncio.wait(polls, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert len(done.pop().result().offers) == 1
        for poll in waiting:
            poll.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
