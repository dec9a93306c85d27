"""What answers on a port that is taken."""

from __future__ import annotations

import http.client
import re

TIMEOUT_S = 0.5
_BYTES_MAX = 1_000
_VERSION = re.compile(rb'"title":\s*"Penstock[^"]*",\s*"version":\s*"(?P<version>[0-9A-Za-z.+-]{1,40})"')


def penstock_at(host: str, port: int) -> str | None:
    """Return the version of the Penstock that answers on a port of this machine; None if none does, or not soon."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not to listen on
    connection = http.client.HTTPConnection(reachable, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/openapi.json")
        start = connection.getresponse().read(_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    found = _VERSION.search(start)
    return None if found is None else found["version"].decode()
