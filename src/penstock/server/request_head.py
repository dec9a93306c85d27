"""What stands before a request's body, from bytes to text, and whether it is for SQS."""

from __future__ import annotations

import re

import httptools

_SQS_PATH = re.compile(r"/$|/[0-9]{1,12}/|/queue/")
"""What queue URLs look like: `/`, `/{account}/{queue}`, `/queue/{name}`, and longer ones with a region in them."""

_SQS_METHODS = frozenset({"POST", "GET"})

_FREQUENT = """
Host Connection Accept Accept-Encoding User-Agent Content-Type Content-Length Authorization X-Amz-Target X-Amz-Date
X-Amz-Security-Token X-Amz-Content-Sha256 X-Amzn-Query-Mode amz-sdk-invocation-id amz-sdk-request X-Amz-User-Agent
"""
FREQUENT_NAMES = {spelt.encode(): name.lower() for name in _FREQUENT.split() for spelt in (name, name.lower())}
"""Names that nearly every request has, by their usual spellings: to look one up takes half as long as to make it."""


def for_sqs(method: str, path: str, fields: dict[str, str]) -> bool:
    """Tell the requests of SQS clients from all others."""
    return "x-amz-target" in fields or (method in _SQS_METHODS and _SQS_PATH.match(path) is not None)


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
