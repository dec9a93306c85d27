"""Which requests of web pages pass, header by header."""

from __future__ import annotations

import pytest

from penstock.domain.errors import AccessDenied
from penstock.server.browser_guard import HOSTS_REMEMBERED_MAX, BrowserGuard
from penstock.wire.http import Request

HOST = "localhost:9324"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"
PAGE = "https://app.example.com"


def head(method: str = "POST", query: str = "", **fields: str) -> Request:
    return Request(method, "/", query, {"host": HOST} | {key.replace("_", "-"): fields[key] for key in fields}, b"")


def refusal(guard: BrowserGuard, request: Request) -> str:
    with pytest.raises(AccessDenied) as refused:
        guard.check(request)
    assert not guard.passes(request.headers) or request.method == "GET"
    return refused.value.reason


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:9324", "LOCALHOST:9324", "localhost.", "queues.localhost", "a.b.localhost:1"),
        *("127.0.0.1", "127.0.0.1:9324", "192.168.7.9:9324", "[::1]:9324", "[2001:db8::1]", "127.1"),
        *("penstock", "penstock:9324", "my_queue-1:80", "host.docker.internal:9324", "x.internal"),
        *("penstock.default.svc.cluster.local:9324", ""),
    ],
)
def test_a_name_that_no_stranger_can_have_passes(host: str) -> None:
    guard = BrowserGuard()
    assert guard.check(head(host=host)) == []
    assert guard.passes({"host": host})


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example", "rebound.example:9324", "rebound.example.", "127.0.0.1.nip.io", "localhost.example"),
        *("notinternal.example", "evil-localhost.com", "x.cluster.local", "1.2.3.4.example", "sqs.localhost.cloud"),
    ],
)
def test_a_name_that_anybody_can_register_is_refused_and_the_flag_named(host: str) -> None:
    assert f"--allowed-host {host.partition(':')[0].removesuffix('.')}." in refusal(BrowserGuard(), head(host=host))


def test_allowed_hosts_are_names_or_suffixes() -> None:
    guard = BrowserGuard(hosts=["Queues.example.com", "*.localhost.localstack.cloud"])
    for host in ("queues.example.com:443", "sqs.us-east-1.localhost.localstack.cloud:4566"):
        assert guard.check(head(host=host)) == []
    for host in ("x.queues.example.com", "localhost.localstack.cloud", "queues.example.com.evil.example"):
        refusal(guard, head(host=host))


def test_with_keys_the_host_may_be_any() -> None:
    assert BrowserGuard(guarded=True).check(head(host="queues.example.com")) == []


def test_only_so_many_hosts_are_remembered() -> None:
    guard = BrowserGuard()
    for number in range(HOSTS_REMEMBERED_MAX + 1):
        guard.check(head(host=f"h{number}"))
    assert not guard.passes({"host": "h0"})
    assert guard.passes({"host": f"h{HOSTS_REMEMBERED_MAX}"})


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:3000", "http://localhost", "file://", "http://[::1", HOST, ""],
)
def test_a_foreign_origin_is_refused_with_keys_or_without(origin: str, guarded: bool) -> None:
    assert "--allowed-origin" in refusal(BrowserGuard(guarded=guarded), head(origin=origin))


@pytest.mark.parametrize("origin", ["http://localhost:9324", "https://LOCALHOST:9324"])
def test_pages_of_the_server_itself_may_use_it(origin: str) -> None:
    fields = {"origin": origin, "sec_fetch_site": "same-origin", "referer": f"{origin}/docs"}
    assert BrowserGuard().check(head(**fields)) == []


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything new"])
def test_a_request_from_another_site_is_refused(site: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        refusal(BrowserGuard(), head(method, sec_fetch_site=site))


@pytest.mark.parametrize("referer", ["http://evil.example/", "http://localhost:3000/", "about:blank", "http://[/"])
def test_a_request_from_a_page_of_another_host_is_refused(referer: str) -> None:
    refusal(BrowserGuard(), head(referer=referer))


def test_with_keys_a_link_from_another_site_may_be_followed() -> None:
    fields = {"sec_fetch_site": "cross-site", "referer": "http://wiki.example/", "user_agent": CHROME}
    assert BrowserGuard(guarded=True).check(head("GET", **fields)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_mode": "no-cors"},
        {"referer": f"http://{HOST}/docs"},
        {"user_agent": CHROME},
    ],
)
@pytest.mark.parametrize("guarded", [False, True])
def test_a_browser_changes_nothing_by_get(fields: dict[str, str], guarded: bool) -> None:
    guard = BrowserGuard(guarded=guarded)
    for query in (
        "Action=DeleteQueue",
        "x=1&Action=ReceiveMessage",
        "Acti%6Fn=PurgeQueue",
        "Action=ListQueues&Action=X",
    ):
        assert "by GET" in refusal(guard, head("GET", query, **fields))
    assert guard.check(head("GET", "Action=ListQueues", **fields)) == []
    assert guard.check(head("GET", "", **fields)) == []


@pytest.mark.parametrize("agent", ["curl/8.5.0", "Boto3/1.43", "aws-cli/1.46", "aws-sdk-js/3.1164", "Wget/1.21", ""])
def test_another_client_may_do_everything_by_get(agent: str) -> None:
    assert BrowserGuard().check(head("GET", "Action=DeleteQueue", user_agent=agent)) == []


def test_with_keys_a_presigned_url_works_in_a_browser() -> None:
    query = "Action=SendMessage&MessageBody=x&X-Amz-Signature=0"
    fields = {"user_agent": CHROME, "sec_fetch_site": "none"}
    assert BrowserGuard(guarded=True).check(head("GET", query, **fields)) == []
    # Without keys nobody looks at the signature, so anybody could write one.
    refusal(BrowserGuard(), head("GET", query, **fields))


@pytest.mark.parametrize("guarded", [False, True])
def test_a_page_of_an_allowed_origin_can_read_the_answers(guarded: bool) -> None:
    guard = BrowserGuard(origins=[PAGE], guarded=guarded)
    added = dict(guard.check(head(origin=PAGE, sec_fetch_site="cross-site", referer=f"{PAGE}/")))
    assert added["access-control-allow-origin"] == PAGE
    assert added["vary"] == "origin"
    assert "x-amzn-requestid" in added["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in added
    refusal(guard, head(origin="https://app.example.com.evil.example"))
    refusal(guard, head(origin=f"{PAGE}:444"))


def test_an_allowed_origin_does_not_make_up_for_the_host() -> None:
    assert "--allowed-host" in refusal(BrowserGuard(origins=[PAGE]), head(origin=PAGE, host="rebound.example"))


def test_a_preflight_is_answered_with_what_it_asks_for() -> None:
    guard = BrowserGuard(origins=[PAGE])
    asked = {"origin": PAGE, "access_control_request_method": "POST"}
    wanted = "authorization,content-type,x-amz-target"
    answer = guard.preflight(head("OPTIONS", access_control_request_headers=wanted, **asked))
    assert answer is not None
    allowed = dict(answer.headers)
    assert allowed["access-control-allow-headers"] == wanted
    assert "POST" in allowed["access-control-allow-methods"]
    smuggled = guard.preflight(head("OPTIONS", access_control_request_headers="a: b", **asked))
    assert smuggled is not None
    assert dict(smuggled.headers)["access-control-allow-headers"] == ""
    assert guard.preflight(head("OPTIONS", origin=PAGE)) is None
    assert guard.preflight(head(**asked)) is None
