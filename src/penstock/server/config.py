"""What a server is told at its start, and what it refuses to be told."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from pathlib import Path
from socket import AddressFamily
from typing import Literal

import msgspec

from penstock.server.access import AccessKey
from penstock.server.admission import CONNECTIONS_MAX
from penstock.server.jobs.access import OF_ONE_TENANT, ApiToken, Caller

ACCOUNT_DIGITS = 12
CLIENT_TIMEOUT_S_MAX = 3_600
WORKERS_MAX = 64
REQUEST_MEMORY_MIB_MIN = 64
"""Of which an anonymous caller gets a quarter: enough for the largest request."""
REQUEST_MEMORY_MIB_MAX = 1_048_576
MONITORING_TOKEN_CHARACTERS_MIN = 16
TENANT_CHARACTERS_MAX = 200
_ACCOUNT = re.compile(r"[0-9]{12}")
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_USER = re.compile(r"[A-Za-z0-9+=,.@_-]{1,128}")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_TOKEN_NAME = re.compile(r"[A-Za-z0-9+=,.@_-]{1,128}")
_HOST_PATTERN = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")
_QUEUE_PATTERN = re.compile(r"[A-Za-z0-9._:*?-]{1,200}")


class StartFailure(Exception):
    """The server cannot start as configured. The message is written for the person who started it.

    `hint` is what to try next. A failure is `refused` if the server could start so, but must not.
    """

    def __init__(self, message: str, *, hint: str = "", refused: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.refused = refused


class PortInUse(StartFailure):
    """Another process listens on the port."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"Port {port} is already in use.", hint=f"penstock serve --port {port % 65_535 + 1}")
        self.host = host
        self.port = port


class DeclaredQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is there once the server has started, with these attributes and tags among others."""

    region: str
    account: str
    name: str
    attributes: dict[str, str]
    tags: dict[str, str]
    dead_letter_queue: str | None = None
    """The name of a queue of the same account and region."""
    max_receive_count: int = 0


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one server process. In a file, and as flags, they have these names; those with a unit at their
    end are told without it.
    """

    host: str = "127.0.0.1"
    port: int = 9324
    """0 takes any free port; the line that says that the server is ready names it."""
    socket: str | None = None
    """A Unix socket to listen on instead of a port. With a SQLite store, embedded clients of the file find it."""
    store: str = "sqlite:./data/penstock.db"
    clock: Literal["system", "manual"] = "system"
    workers: int = 1
    """How many processes serve behind the port; more than one on PostgreSQL only, as SQLite has one owner."""
    insecure: bool = False
    """Listen on an address that others can reach, although nobody has to prove who they are."""
    region: str = "us-east-1"
    """The region of requests whose signature names none."""
    account: str = "000000000000"
    """The account that queues belong to."""
    public_url: str | None = None
    """How clients reach this server, for queue URLs; unset, each client is answered with the host that it used."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    allowed_host: tuple[str, ...] = ()
    """Further names of this server, or `*.` and a suffix; without keys and tokens it answers under no other."""
    allowed_origin: tuple[str, ...] = ()
    """Origins of web pages that may use this server."""
    connections_max: int = CONNECTIONS_MAX
    """How many connections a process serves at a time; further ones are refused."""
    request_memory_mib: int = msgspec.field(default=256, name="request_memory")
    """How much of unfinished requests a process holds, besides what every connection may."""
    client_timeout_s: float = msgspec.field(default=60, name="client_timeout")
    """How long a client may take to send a request, to send the next one, or to read an answer."""
    purge_interval_s: int = msgspec.field(default=60, name="purge_interval")
    name_reuse_s: int = msgspec.field(default=60, name="name_reuse_delay")
    monitoring_token: str | None = None
    """What /metrics, /stats and a look at messages ask for; once there are keys, nobody sees them without it."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    color: Literal["auto", "always", "never"] = "auto"
    keys: tuple[AccessKey, ...] = ()
    tokens: tuple[ApiToken, ...] = ()
    """Of the job API. Once there are keys or tokens, nobody uses either API without one."""
    queues: tuple[DeclaredQueue, ...] = ()

    def __repr__(self) -> str:
        # A store's URL may hold a password.
        return f"ServerConfig(host={self.host!r}, port={self.port!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("host", self.host), ("port", self.port)]

    @property
    def scheme(self) -> str:
        """What URLs of this server begin with."""
        return "http" if self.tls_certificate is None else "https"

    @property
    def guarded(self) -> bool:
        """Whether callers have to prove who they are."""
        return bool(self.keys or self.tokens)

    def check(self) -> None:
        """Refuse settings that make no sense, or that would open the store to strangers."""
        if not 0 <= self.port <= 65_535:
            raise StartFailure(f"There is no port {self.port}: ports are 0 (any free one) to 65535.")
        if not _ACCOUNT.fullmatch(self.account):
            raise StartFailure(f"The account {self.account!r} is not a number of {ACCOUNT_DIGITS} digits.")
        if not _REGION.fullmatch(self.region):
            raise StartFailure(f"The region {self.region!r} is not of the form us-east-1.")
        if self.public_url is not None and not self.public_url.startswith(("http://", "https://")):
            raise StartFailure(f"The public URL {self.public_url!r} begins with neither http:// nor https://.")
        self._check_workers()
        self._check_tls()
        self._check_socket()
        self._check_pages()
        self._check_clients()
        if self.purge_interval_s < 0 or self.name_reuse_s < 0:
            raise StartFailure("The purge interval and the name reuse delay are numbers of seconds, 0 or more.")
        token = self.monitoring_token
        if token is not None and len(token) < MONITORING_TOKEN_CHARACTERS_MIN:
            raise StartFailure(f"The monitoring token is shorter than {MONITORING_TOKEN_CHARACTERS_MIN} characters.")
        self._check_keys()
        self._check_tokens()
        if self.socket is None and not self.guarded and not self.insecure and not self.on_loopback:
            raise StartFailure(
                f"{self.host} is reachable from other machines, and no keys are set.",
                hint="add [[keys]] to a file and pass --config FILE, or --insecure",
                refused=True,
            )

    def _check_workers(self) -> None:
        if not 1 <= self.workers <= WORKERS_MAX:
            raise StartFailure(f"There may be 1 to {WORKERS_MAX} workers, not {self.workers}.")
        if self.workers > 1 and not self.store.startswith(("postgresql://", "postgres://")):
            raise StartFailure("Several workers need PostgreSQL: any other store belongs to one process.")
        if self.workers > 1 and self.clock == "manual":
            raise StartFailure(
                "A clock that is moved by hand can be moved in one process only, not in several workers."
            )

    def _check_socket(self) -> None:
        if self.socket is None:
            return
        if self.workers > 1 or self.tls_certificate is not None:
            raise StartFailure("A server on a Unix socket is one process without TLS.")
        place = Path(self.socket)
        if not place.is_socket() and place.exists():
            raise StartFailure(f"{self.socket} exists and is not a socket. Choose another name with --socket.")

    def _check_clients(self) -> None:
        if not 0 < self.client_timeout_s <= CLIENT_TIMEOUT_S_MAX:
            raise StartFailure(
                f"The client timeout is a number of seconds, more than 0 and at most {CLIENT_TIMEOUT_S_MAX}."
            )
        if self.connections_max < 1:
            raise StartFailure("The maximum number of connections is 1 or more.")
        if not REQUEST_MEMORY_MIB_MIN <= self.request_memory_mib <= REQUEST_MEMORY_MIB_MAX:
            raise StartFailure(
                f"The request memory is a number of MiB from {REQUEST_MEMORY_MIB_MIN} to {REQUEST_MEMORY_MIB_MAX}."
            )

    def _check_pages(self) -> None:
        for host in self.allowed_host:
            if not _HOST_PATTERN.fullmatch(host):
                raise StartFailure(
                    f"The allowed host {host!r} is neither a name (queues.example.com) nor a suffix (*.example.com). "
                    "It has no scheme and no port."
                )
        for origin in self.allowed_origin:
            if not _ORIGIN.fullmatch(origin):
                raise StartFailure(
                    f"The allowed origin {origin!r} is not a scheme, a host and perhaps a port, as in "
                    "https://app.example.com."
                )

    def _check_keys(self) -> None:
        ids = [key.id for key in self.keys]
        for key in self.keys:
            if ids.count(key.id) > 1:
                raise StartFailure(f"The key {key.id} is declared twice.")
            if not _KEY_ID.fullmatch(key.id):
                raise StartFailure("The id of a key is 1 to 128 letters, digits, underscores and hyphens.")
            if not key.secret:
                raise StartFailure(f"The secret of the key {key.id} is empty.")
            if not _ACCOUNT.fullmatch(key.account):
                raise StartFailure(f"The account of the key {key.id} is not a number of {ACCOUNT_DIGITS} digits.")
            if not _USER.fullmatch(key.user):
                raise StartFailure(
                    f"The user of the key {key.id} is not a name of 1 to 128 letters, digits and +=,.@_-."
                )

    def _check_tokens(self) -> None:
        names: set[str] = set()
        digests: set[bytes] = set()
        for token in self.tokens:
            _check_caller(token.caller)
            if token.caller.name in names:
                raise StartFailure(f"The token {token.caller.name} is declared twice.")
            if token.digest in digests:
                raise StartFailure(f"The token {token.caller.name} is declared under another name too.")
            names.add(token.caller.name)
            digests.add(token.digest)

    def _check_tls(self) -> None:
        if self.tls_certificate is None and self.tls_key is None:
            return
        if self.tls_certificate is None or self.tls_key is None:
            raise StartFailure("TLS needs both a certificate and its key.")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_certificate, self.tls_key)
        except OSError as error:
            raise StartFailure(f"The TLS certificate and key cannot be used: {error.strerror or error}.") from None

    def addresses(self) -> list[tuple[AddressFamily, tuple[str, int]]]:
        """Return the addresses that the host's name stands for, those of IPv4 first."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise StartFailure(f"The host {self.host!r} is unknown: {error.strerror}.") from None
        except UnicodeError:
            raise StartFailure(f"The host {self.host!r} is unknown: it cannot be the name of any.") from None
        return sorted((family, (str(address[0]), self.port)) for family, _, _, _, address in found)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect to the host and port."""
        return all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for _, (host, _) in self.addresses())


def _check_caller(caller: Caller) -> None:
    """Refuse a token that is good for nothing, or for more than can be kept apart."""
    if not _TOKEN_NAME.fullmatch(caller.name):
        raise StartFailure("The name of a token is 1 to 128 letters, digits and +=,.@_-.")
    if not caller.scopes:
        raise StartFailure(f"The token {caller.name} has no scopes, so it may nothing.")
    if caller.tenant is not None:
        if not 1 <= len(caller.tenant) <= TENANT_CHARACTERS_MAX or not caller.tenant.isprintable():
            raise StartFailure(
                f"The tenant of the token {caller.name} is not 1 to {TENANT_CHARACTERS_MAX} printable characters."
            )
        if beyond := sorted(caller.scopes - OF_ONE_TENANT):
            raise StartFailure(
                f"The token {caller.name} is for one tenant, and the scope {beyond[0].value} is about all of them."
            )
    if not all(_QUEUE_PATTERN.fullmatch(pattern) for pattern in caller.queues or ()):
        raise StartFailure(
            f"The token {caller.name} names a queue that is not letters, digits and ._:-, with * and ? for any others."
        )
