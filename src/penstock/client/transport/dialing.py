"""Dialers: each opens connections to one server, over TCP, TLS or a Unix socket."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Protocol

from penstock.client.errors import ClientError, ConnectionFailed, DeadlineExceeded, NotTrusted

CONNECT_S = 5.0
"""How long one attempt to connect may take, and all of them together to a server that was never reached."""


class Dialer(Protocol):
    """Opens connections to one server.

    The transport does the TLS handshake itself, with `tls` and `server_name`, because asyncio needs a plain socket.
    A dialer is used by many threads at once, and in forked children.
    """

    @property
    def name(self) -> str:
        """Where it leads, for error messages: `http://queue:9324`, `sqlite:jobs.db`. It holds no secret."""

    @property
    def authority(self) -> str:
        """The `Host` header: `queue:9324`, or `localhost` for a Unix socket."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context, or None for a plain connection."""

    @property
    def server_name(self) -> str | None:
        """The name that the server's certificate must have, if `tls` is set."""

    def dial(self, deadline: float) -> socket.socket:
        """Return a connected stream socket in blocking mode, by `deadline` (as `time.monotonic()` counts).

        `ConnectionFailed` says that the server cannot be reached now: the transport tries again, here or at another
        address, until its caller's deadline. Any other `PenstockError` is final and reaches the caller as it is.
        """

    def close(self) -> None:
        """Let go of what the dialer holds besides the connections that it has returned. It may block."""


class TcpDialer:
    """Connects to a host and port; names with several addresses are tried one after the other."""

    def __init__(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, connect_s: float = CONNECT_S
    ) -> None:
        self._host = host
        self._port = port
        self._connect_s = connect_s
        bracketed = f"[{host}]" if ":" in host else host
        self.authority = f"{bracketed}:{port}"
        self.name = f"{'http' if tls is None else 'https'}://{self.authority}"
        self.tls = tls
        self.server_name = None if tls is None else host

    def dial(self, deadline: float) -> socket.socket:
        """Connect, with Nagle's algorithm off."""
        try:
            connected = socket.create_connection((self._host, self._port), _seconds_left(deadline, self._connect_s))
        except OSError as error:
            raise ConnectionFailed(f"Cannot connect to {self.name}: {error}.") from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(None)
        return connected

    def close(self) -> None:
        """Do nothing: it holds nothing."""


class UnixDialer:
    """Connects to a Unix socket."""

    authority = "localhost"
    tls = None
    server_name = None

    def __init__(self, path: str, *, connect_s: float = CONNECT_S) -> None:
        self._path = path
        self._connect_s = connect_s
        self.name = f"unix:{path}"

    def dial(self, deadline: float) -> socket.socket:
        """Connect."""
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.ExitStack() as undo:
            undo.callback(connecting.close)
            try:
                connecting.settimeout(_seconds_left(deadline, self._connect_s))
                connecting.connect(self._path)
            except OSError as error:
                raise ConnectionFailed(f"Cannot connect to {self.name}: {error}.") from error
            connecting.settimeout(None)
            undo.pop_all()
        return connecting

    def close(self) -> None:
        """Do nothing: it holds nothing."""


def _seconds_left(deadline: float, most: float) -> float:
    """Return how long to wait: more than nothing, which would mean not to wait at all."""
    return max(min(deadline - time.monotonic(), most), 0.001)


def failure(dialer: Dialer, error: OSError) -> ClientError:
    """Return what to raise for an error of a connection, or of its TLS handshake."""
    if isinstance(error, TimeoutError):
        return DeadlineExceeded(f"{dialer.name} did not answer in time.")
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotTrusted(f"The certificate of {dialer.name} is not trusted: {error.verify_message}.")
    return ConnectionFailed(f"The connection to {dialer.name} failed: {str(error) or type(error).__name__}.")
