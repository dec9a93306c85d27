"""Where a server listens: a port, or a Unix socket."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from penstock.server.config import PortInUse, StartFailure
from penstock.server.unix_sockets import UnixListener, short_address
from penstock.store.ownership.paths import PRIVATE, canonical_path, sharing_of, socket_path, sqlite_file

if TYPE_CHECKING:
    from penstock.server.config import ServerConfig


def listen(config: ServerConfig, *, shared: bool) -> socket.socket:
    """Take the port, before anything is done that would be in vain without it; or share it with other workers."""
    family, address = config.addresses()[0]
    listener = socket.socket(family)
    try:
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise cannot_listen(config, error) from None
    return listener


def listen_locally(config: ServerConfig, path: str) -> UnixListener:
    """Bind a socket for those who may use the SQLite file; for this user alone if the store is another one."""
    file = sqlite_file(config.store)
    mode, group = (PRIVATE, None) if file is None else sharing_of(file)
    # Whoever owns the file owns the socket beside it, even if a forked child of its last owner still listens there.
    ours = file is not None and path == socket_path(canonical_path(file))
    if not ours and _in_use(path):
        raise StartFailure(f"The socket {path} is in use by another process.")
    try:
        return UnixListener(path, mode=mode, group=group)
    except OSError as error:
        raise cannot_listen(config, error) from None


def _in_use(path: str) -> bool:
    try:
        with short_address(path) as address, socket.socket(socket.AF_UNIX) as probe:
            probe.connect(address)
    except OSError:
        return False
    return True


def cannot_listen(config: ServerConfig, error: OSError) -> StartFailure:
    """Say why a server cannot listen."""
    if config.socket is not None:
        return StartFailure(f"Cannot listen on the socket {config.socket}: {error.strerror}.")
    if error.errno == errno.EADDRINUSE:
        return PortInUse(config.host, config.port)
    return StartFailure(f"Cannot listen on {config.host} port {config.port}: {error.strerror}.")


def url_of(config: ServerConfig, listener: socket.socket | UnixListener) -> str:
    """Return the address that a server announces."""
    if isinstance(listener, UnixListener):
        return f"unix:{listener.path}"
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{config.scheme}://{host}:{listener.getsockname()[1]}"
