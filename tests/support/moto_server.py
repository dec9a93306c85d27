"""moto's server in a thread: another SQS to compare with, and DynamoDB."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """Run moto on a free port of loopback, and give its address.

    Writes to a table that depend on a condition are atomic in DynamoDB, and not in moto, where two at once can both
    find the condition met. So requests to its tables go one at a time.
    """
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - it takes a second to load

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    server: Any = moto._server  # noqa: SLF001 - the only way to its application
    server.app = _one_table_request_at_a_time(server.app)
    host, port = moto.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        moto.stop()


Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


def _one_table_request_at_a_time(application: Application) -> Application:
    lock = threading.Lock()

    def locked(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if not environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB"):
            return application(environ, start_response)
        with lock:
            return [b"".join(application(environ, start_response))]

    return locked
