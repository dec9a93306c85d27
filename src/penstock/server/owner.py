"""A server on a Unix socket as the owner of a SQLite file: its routes, its record, and when it ends."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock import __version__
from penstock.domain.errors import StoreUnavailable
from penstock.server.jobs.call import Call, Route, answer_json
from penstock.store.ownership.owner import SCHEMA, Owner
from penstock.store.ownership.paths import sqlite_file
from penstock.wire.jobs.ownership import HandOver, HandOverView, OwnerView

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.wire.http import Response

_log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(HandOver)

KEPT_S = 10 * 365 * 86_400.0
"""How long a connection without requests is kept there: each client has one, as a sign that it lives."""

_CHECK_S = 0.25
HEADER = "penstock-owner"


class OwnerRole:
    """What a server does beyond serving because it owns the file.

    One that was started `on_demand` ends when a newer client asks for it, and, with `idle_s`, when it has had no
    connection for that long. Another one is run by somebody, and only they end it.
    """

    def __init__(self, owner: Owner, socket: str, *, on_demand: bool = False, idle_s: float | None = None) -> None:
        """Prepare the opening of the store as the owner that serves on `socket`."""
        self.owner = owner
        self._idle_s = idle_s
        self.on_demand = on_demand
        self._stop: Callable[[], None] = lambda: None
        self.failure: StoreUnavailable | None = None
        """Why it had to end, if it did not end of its own accord."""
        owner.prepare(socket=str(Path(socket).absolute()))

    @classmethod
    def of_server(cls, store: str, socket: str) -> OwnerRole | None:
        """Make the role of a server that an operator runs; None if the store is no SQLite file.

        Raises `StoreInUse` if the file has another owner.
        """
        path = sqlite_file(store)
        return None if path is None else cls(Owner.take(path), socket)

    def routes(self) -> list[Route]:
        """List the routes that only an owner has."""
        return [
            Route(
                method="GET",
                path="/v1/owner",
                name="GetOwner",
                summary="Show which process owns the database file. Only on a Unix socket.",
                handler=self._show,
                answers={200: OwnerView},
            ),
            Route(
                method="POST",
                path="/v1/owner/hand-over",
                name="HandOver",
                summary="Ask the owner to end, because the caller knows a newer schema. Only on a Unix socket.",
                handler=self._hand_over,
                body=HandOver,
                answers={200: HandOverView},
            ),
        ]

    async def _show(self, _call: Call) -> Response:
        owner = self.owner
        return answer_json(OwnerView(version=__version__, schema=SCHEMA, pid=os.getpid(), number=owner.number))

    async def _hand_over(self, call: Call) -> Response:
        wanted = call.body(_decode)
        handing_over = self.on_demand and wanted.schema > SCHEMA
        if handing_over:
            _log.info("Ending, since a client of a newer version (schema %d) takes over", wanted.schema)
            # After the answer.
            asyncio.get_running_loop().call_soon(self._stop)
        return answer_json(HandOverView(handing_over=handing_over))

    async def watch(self, connections: Callable[[], int], stop: Callable[[], None]) -> None:
        """Call `stop` when this owner has to end, with `failure` set if something is wrong."""
        self._stop = stop
        loop = asyncio.get_running_loop()
        used_at = loop.time()
        while True:
            trouble = self.owner.trouble()
            if trouble is not None:
                _log.critical("Ending, since %s", trouble)
                self.failure = StoreUnavailable(f"The owner ended, since {trouble}.")
                break
            if connections():
                used_at = loop.time()
            elif self._idle_s is not None and loop.time() - used_at >= self._idle_s:
                break
            await asyncio.sleep(_CHECK_S if self._idle_s is None else min(_CHECK_S, self._idle_s / 4))
        stop()
