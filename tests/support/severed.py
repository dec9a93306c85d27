"""A way to a PostgreSQL server that can be severed: the client loses its connections, the server does not notice."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.postgres import PostgresServer

_SOCKET = ".s.PGSQL.5432"


class SeverableWay:
    """Passes bytes on in both directions, until `sever`; connections made after it are passed on again."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self._folder = folder
        self._server = server
        self._clients: list[asyncio.StreamWriter] = []
        self._ends: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()

    def dsn(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def sever(self) -> None:
        """Cut off the clients. What their sessions are doing goes on, and its answers go nowhere."""
        clients, self._clients = self._clients, []
        for client in clients:
            client.transport.abort()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_unix_connection(str(self._server.folder / _SOCKET))
        self._clients.append(writer)
        self._ends += writer, there_writer
        for pump in (self._ask(reader, there_writer), self._answer(there_reader, writer)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def close(self) -> None:
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for end in self._ends:
            end.close()
        await asyncio.gather(*(end.wait_closed() for end in self._ends), return_exceptions=True)

    @staticmethod
    async def _ask(client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        # When the client is gone the server's side stays open: that is the point.
        with contextlib.suppress(ConnectionError):
            while data := await client.read(65_536):
                server.write(data)

    @staticmethod
    async def _answer(server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await server.read(65_536):
            if not client.transport.is_closing():
                client.write(data)
        client.close()


@contextlib.asynccontextmanager
async def severable_way(server: PostgresServer) -> AsyncIterator[SeverableWay]:
    with tempfile.TemporaryDirectory(prefix="penstock-way-") as folder:
        way = SeverableWay(Path(folder), server)
        listener = await asyncio.start_unix_server(way.connect, str(Path(folder) / _SOCKET))
        try:
            yield way
        finally:
            listener.close()
            await way.close()
