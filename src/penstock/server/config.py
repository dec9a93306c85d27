"""What a server is told at its start, and what it refuses to be told."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from typing import Literal

import msgspec

ACCOUNT_DIGITS = 12
_ACCOUNT = re.compile(r"[0-9]{12}")
_REGION = re.compile(r"[a-z0-9-]{1,40}")


class StartFailure(Exception):
    """The server cannot start as it was told to. The message is written for whoever started it."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one server process."""

    host: str = "127.0.0.1"
    port: int = 9324
    """0 takes any free port; the line that says that the server is ready names it."""
    store: str = "sqlite:./data/penstock.db"
    clock: Literal["system", "manual"] = "system"
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
    purge_interval_s: int = 60
    name_reuse_s: int = 60
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    @property
    def scheme(self) -> str:
        """What URLs of this server begin with."""
        return "http" if self.tls_certificate is None else "https"

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
        self._check_tls()
        if self.purge_interval_s < 0 or self.name_reuse_s < 0:
            raise StartFailure("The purge interval and the name reuse delay are numbers of seconds, 0 or more.")
        if not self.insecure and not self._on_loopback():
            raise StartFailure(
                f"{self.host} can be reached from other machines, and no credentials are configured: anybody could "
                "read and delete messages. Listen on 127.0.0.1, or say --insecure if the network is guarded otherwise."
            )

    def _check_tls(self) -> None:
        if self.tls_certificate is None and self.tls_key is None:
            return
        if self.tls_certificate is None or self.tls_key is None:
            raise StartFailure("TLS needs both a certificate and its key.")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_certificate, self.tls_key)
        except OSError as error:
            raise StartFailure(f"The TLS certificate and key cannot be used: {error.strerror or error}.") from None

    def addresses(self) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
        """Return the addresses that the host's name stands for, those of IPv4 first."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise StartFailure(f"The host {self.host!r} is unknown: {error.strerror}.") from None
        return sorted((family, (str(address[0]), self.port)) for family, _, _, _, address in found)

    def _on_loopback(self) -> bool:
        return all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for _, (host, _) in self.addresses())
