"""What a URL of `Penstock` means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import msgspec

from penstock.client.errors import UrlInvalid
from penstock.client.transport.dialing import TcpDialer, UnixDialer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from penstock.client.transport.dialing import Dialer

_PARTS = re.compile(r"([^/?#]*)([^?#]*)(.*)", re.DOTALL)
"""Of a URL, after its scheme: user and host, path, and the rest."""
FORMS = "It has to be http://HOST:PORT, https://HOST:PORT, unix:/PATH.sock, sqlite:PATH, memory: or postgresql://HOST/DATABASE."
_SERVERS = ("http:", "https:", "unix:")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class Target(msgspec.Struct, frozen=True):
    """Where calls go: to servers, to the owner of a file, or to an engine in this process."""

    kind: Literal["server", "file", "process"]
    url: str
    """Of a file its path; of servers all of their addresses."""
    shown: str
    """The same for people to see: without a password."""


def read_url(url: str) -> Target:
    """Read a URL, or several addresses of one service with commas between them; raises `UrlInvalid`."""
    url = url.strip()
    if not url:
        raise UrlInvalid(f"The URL is empty. {FORMS}")
    scheme = _SCHEME.match(url)
    if scheme is None:
        raise UrlInvalid(f"{url[:40]!r} has no scheme. {FORMS}")
    match scheme[1].lower():
        case "http" | "https" | "unix":
            return Target("server", url, url)
        case "memory" if url == "memory:":
            return Target("process", url, url)
        case "sqlite":
            return Target("file", _path(url), url)
        case "postgresql" | "postgres" if url.partition(":")[2].startswith("//"):
            return Target("process", url, without_password(url))
    raise UrlInvalid(f"{without_password(url)[:40]!r} is not a URL for Penstock. {FORMS}")


def dialers(url: str, tls: Callable[[], ssl.SSLContext], connect_s: float) -> Sequence[Dialer]:
    """Return what dials each of the addresses; raises `UrlInvalid`."""
    return [_dialer(address.strip(), tls, connect_s) for address in url.split(",")]


def _dialer(address: str, tls: Callable[[], ssl.SSLContext], connect_s: float) -> Dialer:
    if not address.startswith(_SERVERS):
        raise UrlInvalid(f"{without_password(address)[:40]!r} is no address of a server. {FORMS}")
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if not path.startswith("/"):
            raise UrlInvalid(f"{address!r} does not name a socket by its whole path. {FORMS}")
        return UnixDialer(path, connect_s=connect_s)
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise UrlInvalid(f"The address of a server is wrong: {error}. {FORMS}") from None
    if "@" in parts.netloc:
        raise UrlInvalid("The address of a server holds a user name or a password; give a token instead.")
    if not parts.hostname or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise UrlInvalid(f"{address!r} has to be a host and a port, and nothing more. {FORMS}")
    secure = parts.scheme == "https"
    return TcpDialer(
        parts.hostname, port or (443 if secure else 80), tls=tls() if secure else None, connect_s=connect_s
    )


def _path(url: str) -> str:
    path = url.partition(":")[2]
    if path.startswith("///"):
        path = path[2:]
    if not path or path.startswith("//") or path.endswith("/"):
        raise UrlInvalid(f"{url!r} does not name a file. {FORMS}")
    return path


def without_password(url: str) -> str:
    """Return a URL as it may be shown. Of one that is not well-formed, nothing that may be of a password is left."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        # No URL, but perhaps another way to name a database, such as libpq's "host=… password=…".
        secret = ("@" in url or "password" in url.lower()) and not url.startswith("sqlite:")
        return "…" if secret else url
    found = _PARTS.fullmatch(rest)
    assert found is not None, "the expression takes any text"
    who_and_where, path, more = found.groups()
    if "@" in path + more:  # The password has a character that ends it here.
        return f"{scheme}://…"
    user, at, where = who_and_where.rpartition("@")
    # A password may be a parameter, too.
    return f"{scheme}://{user.partition(':')[0]}{at}{where}{path}"
