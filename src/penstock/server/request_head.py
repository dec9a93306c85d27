"""What stands before a request's body, from bytes to text, and whether it takes the fast path."""

from __future__ import annotations

import re

import httptools

from penstock.server.browser_guard import host_name

_SQS_PATH = re.compile(r"/$|/[0-9]{1,12}/|/queue/")
"""What queue URLs look like: `/`, `/{account}/{queue}`, `/queue/{name}`, and longer ones with a region in them."""

_SQS_METHODS = frozenset({"POST", "GET"})

JOBS = "/v1/"
"""What the paths of the job API begin with."""

_JOBS_PATH = re.compile(r"/v1/(?:jobs$|dequeue$|leases/)")
_STREAM = "x-ndjson"

_FREQUENT = """
Host Connection Accept Accept-Encoding User-Agent Content-Type Content-Length Authorization X-Amz-Target X-Amz-Date
X-Amz-Security-Token X-Amz-Content-Sha256 X-Amzn-Query-Mode amz-sdk-invocation-id amz-sdk-request X-Amz-User-Agent
"""
FREQUENT_NAMES = {spelt.encode(): name.lower() for name in _FREQUENT.split() for spelt in (name, name.lower())}
"""Names that nearly every request has, by their usual spellings: to look one up takes half as long as to make it."""


def for_sqs(method: str, path: str, fields: dict[str, str]) -> bool:
    """Tell the requests of SQS clients from all others."""
    if "x-amz-target" in fields:
        return not path.startswith(JOBS)
    return method in _SQS_METHODS and _SQS_PATH.match(path) is not None


def for_jobs(method: str, path: str, fields: dict[str, str]) -> bool:
    """Tell the frequent requests of the job API, but for streams, which are answered by the application."""
    if method != "POST" or _JOBS_PATH.match(path) is None:
        return False
    return "accept" not in fields or _STREAM not in fields["accept"]


def framing_fault(fields: dict[str, str], *, http_1_1: bool) -> str | None:
    """Return what is wrong with a head by the rules of HTTP that the parser leaves to others, if anything is."""
    host = fields.get("host")
    if host is None:
        if http_1_1:
            return "A request of HTTP/1.1 needs a Host header."
    elif host_name(host) is None:
        return "A request needs one Host header, with a name or an address and perhaps a port."
    coding = fields.get("transfer-encoding")
    if coding is not None and (coding.strip().lower() != "chunked" or not http_1_1):
        return "The only transfer coding is chunked, in HTTP/1.1."
    return None


def has_body(fields: dict[str, str]) -> bool:
    """Return whether something follows a head."""
    return "transfer-encoding" in fields or fields.get("content-length", "0") != "0"


def head_bytes(target: bytes, fields: dict[str, str]) -> int:
    """Count what a head says, without what only keeps it apart."""
    return len(target) + sum(len(name) + len(value) for name, value in fields.items())


def origin_form(target: bytes) -> bytes:
    """Reduce the form that is sent to proxies (`http://host/path?query`) to path and query; b"" if it is neither."""
    if target[:1] == b"/":
        return target
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return b""
    if not parsed.schema:
        return b""
    return b"%b?%b" % (parsed.path or b"/", parsed.query or b"")
