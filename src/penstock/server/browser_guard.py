"""Keeps web pages from using the server through the browser of somebody who can reach it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from penstock.domain.errors import AccessDenied
from penstock.wire.http import Response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.wire.http import Request

HOSTS_REMEMBERED_MAX = 1_024
HOST_CHARACTERS_MAX = 300
"""A name has at most 254 of them."""
PREFLIGHT_S = 600
"""How long a browser may remember that an origin is allowed."""

_ANY_OF = "*."
_HOST = re.compile(r"(?P<name>[A-Za-z0-9._~-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_ADDRESS = re.compile(r"\[.*\]|[0-9]+(?:\.[0-9]+)*")
"""An IP address. No top-level domain is a number, so nobody can register a name of this form."""
_HOSTS = ("localhost", "*.localhost", "*.internal", "*.svc.cluster.local")
_FIELD_NAMES = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z, -]{0,4096}")
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_READABLE = (
    "date, location, retry-after, www-authenticate, x-amzn-requestid, x-amzn-query-error, x-correlation-id, "
    "idempotency-replayed"
)
"""Headers of answers that clients need and that a browser hides from scripts otherwise."""
_READING = frozenset(
    {
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "ListMessageMoveTasks",
        "ListQueues",
        "ListQueueTags",
    }
)
"""The operations of SQS that change nothing, which one may look at in a browser."""


class BrowserGuard:
    """Refuses requests that a web page made, unless it is a page of this server's own or of an allowed origin.

    Browsers say where a request comes from in `Origin`, `Sec-Fetch-Site` and `Referer`, and no page can change
    that. A page whose host name was rebound to this server's address is of the same origin to the browser, so the
    `Host` has to be a name that no stranger can have.

    Where callers need credentials (`guarded`) a page cannot have them, so only what could do harm without any is
    refused: foreign origins, and changes by GET unless the URL is presigned.
    """

    def __init__(self, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), guarded: bool = False) -> None:
        """`hosts` are names, or `*.` and a suffix; `origins` are those of pages that may use the server."""
        known = [host.lower() for host in (*_HOSTS, *hosts)]
        self._names = frozenset(host for host in known if not host.startswith(_ANY_OF))
        self._suffixes = tuple(host[1:] for host in known if host.startswith(_ANY_OF))
        self._origins = frozenset(origin.lower() for origin in origins)
        self._guarded = guarded
        self._passed: set[str | None] = set()

    def passes(self, fields: dict[str, str]) -> bool:
        """Return True if no browser sent a request other than GET. It is asked for every request, so it is quick."""
        return (
            fields.get("host") in self._passed
            and "origin" not in fields
            and "sec-fetch-site" not in fields
            and "referer" not in fields
        )

    def check(self, head: Request) -> list[tuple[str, str]]:
        """Return the headers that an answer needs so that a page can read it; raise `AccessDenied` for a stranger's.

        The body of the request is not looked at.
        """
        fields = head.headers
        host = fields.get("host", "")
        self._check_host(host)
        origin = fields.get("origin")
        if origin is not None and origin.lower() in self._origins:
            return _readable_by(origin)
        if origin is not None and not _same(origin, host):
            raise AccessDenied(
                f"Pages of {origin[:200]} may not use this server. If they should, start it with --allowed-origin."
            )
        if not self._guarded:
            self._check_site(fields, host)
        if head.method == "GET" and _from_browser(fields) and self._changes(head.query):
            raise AccessDenied("A browser may change nothing by GET. Use POST, or a client other than a browser.")
        return []

    def preflight(self, head: Request) -> Response | None:
        """Answer a browser that asks whether a page may make a request; None if this is no such question.

        It must have passed `check`.
        """
        fields = head.headers
        if head.method != "OPTIONS" or "access-control-request-method" not in fields or "origin" not in fields:
            return None
        wanted = fields.get("access-control-request-headers", "")
        allowed = [
            ("access-control-allow-methods", _METHODS),
            ("access-control-allow-headers", wanted if _FIELD_NAMES.fullmatch(wanted) else ""),
            ("access-control-max-age", str(PREFLIGHT_S)),
        ]
        if "access-control-request-private-network" in fields:
            allowed.append(("access-control-allow-private-network", "true"))
        return Response(headers=allowed)

    def _check_host(self, host: str) -> None:
        if host in self._passed:
            return
        name = host_name(host)
        assert name is not None, "requests with such a host are refused before"
        if not self._guarded and not self._is_ours(name):
            raise AccessDenied(
                f"{name[:255]} is not known as a name of this server. If it is one, start the server with "
                f"--allowed-host {name[:255]}."
            )
        if len(self._passed) >= HOSTS_REMEMBERED_MAX:
            self._passed.clear()
        self._passed.add(host)

    def _is_ours(self, name: str) -> bool:
        if "." not in name or _ADDRESS.fullmatch(name) is not None:
            return True
        return name in self._names or name.endswith(self._suffixes)

    def _check_site(self, fields: dict[str, str], host: str) -> None:
        if fields.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            raise AccessDenied("Pages of other sites may not use this server. If they should, see --allowed-origin.")
        referer = fields.get("referer")
        if referer is not None and not _same(referer, host):
            raise AccessDenied("Pages of other hosts may not use this server. If they should, see --allowed-origin.")

    def _changes(self, query: str) -> bool:
        """Return whether a GET asks SQS to change something, or may do so."""
        if self._guarded and "X-Amz-Signature=" in query:
            return False  # Whoever made the URL had the key, and meant it to be used like this.
        return any(name == "Action" and value not in _READING for name, value in parse_qsl(query))


def host_name(host: str) -> str | None:
    """Return the name or address in a `Host` header, in small letters; None if the header is not of its form."""
    found = _HOST.fullmatch(host) if len(host) <= HOST_CHARACTERS_MAX else None
    return None if found is None else found["name"].lower().removesuffix(".")


def _same(url: str, host: str) -> bool:
    """Return whether a URL is of the host that a request was sent to."""
    try:
        found = urlsplit(url)
    except ValueError:
        return False
    return found.scheme in {"http", "https"} and found.netloc.lower() == host.lower()


def _from_browser(fields: dict[str, str]) -> bool:
    """Return whether a browser sent this. Over plain HTTP to another machine it may say so by its name alone."""
    return (
        fields.get("user-agent", "").startswith("Mozilla/")
        or "referer" in fields
        or "origin" in fields
        or any(name.startswith("sec-fetch-") for name in fields)
    )


def _readable_by(origin: str) -> list[tuple[str, str]]:
    return [
        ("access-control-allow-origin", origin),
        ("access-control-expose-headers", _READABLE),
        ("vary", "origin"),
    ]
