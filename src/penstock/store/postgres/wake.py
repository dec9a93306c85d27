"""Waking: telling this node's listeners at once, and other nodes' soon, that messages have arrived."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import asyncpg

from penstock.store.postgres.attempts import PAUSE_FIRST_S, PAUSE_MAX_S
from penstock.store.postgres.pool import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.postgres.queues import QueueCache

INTERVAL_S = 0.005
"""Other nodes are told at most this often, of all that has arrived meanwhile."""

PAYLOAD_QUEUES_MAX = 300
"""Of how many queues one notification tells: it has room for 8000 bytes."""

PAYLOAD_WORDS_MAX = 150
"""How many words of a topic one notification carries; a word has 50 bytes at most."""

WORDS_PENDING_MAX = 10_000
"""How many words of a topic may wait to be told; what comes beyond that is not told, and is found without."""

HEARTBEAT_S = 10.0
"""How long the connection may be silent before it is tried."""

READY = "penstock_ready"
QUEUE = "penstock_queue"

_log = logging.getLogger(__name__)


class Wake:
    """Listens to other nodes and notifies them, on a connection of its own.

    Nothing depends on a notification: where one is lost, waiting consumers look again by themselves.
    """

    def __init__(self, dsn: str, cache: QueueCache, *, lost: Callable[[], None]) -> None:
        self._dsn = dsn
        self._cache = cache
        self._lost = lost
        self._listeners: list[Callable[[int, int], None]] = []
        self._arrived: dict[int, int] = {}
        self._topics: dict[str, Callable[[str], None]] = {}
        self._words: dict[str, set[str]] = {}
        self._news = asyncio.Event()
        self._pid: int | None = None
        self.listening = asyncio.Event()
        """Set while other nodes are heard."""

    def listen(self, ready: Callable[[int, int], None]) -> None:
        """Have arrivals reported, those of other nodes too."""
        self._listeners.append(ready)

    def arrived(self, queue_id: int, count: int) -> None:
        """Report an arrival."""
        self._report(queue_id, count)
        self._arrived[queue_id] = self._arrived.get(queue_id, 0) + count
        self._news.set()

    def open_topic(self, channel: str, heard: Callable[[str], None]) -> None:
        """Have `heard` called with every word that another node tells on a channel. Done before `run` starts."""
        self._topics[channel] = heard
        self._words[channel] = set()

    def tell(self, channel: str, word: str) -> None:
        """Tell the other nodes a word: some text without a comma."""
        words = self._words[channel]
        if len(words) < WORDS_PENDING_MAX:
            words.add(word)
            self._news.set()

    async def run(self) -> None:
        """Keep the connection, for ever."""
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                session = await Session.open(self._dsn)
            except (OSError, asyncpg.PostgresError) as error:
                _log.debug("cannot listen to other nodes", extra={"reason": str(error)})
            else:
                try:
                    await self._serve(session)
                except (OSError, asyncpg.PostgresError) as error:
                    _log.info("the connection to other nodes was lost", extra={"reason": str(error)})
                finally:
                    if self.listening.is_set():
                        pause_s = PAUSE_FIRST_S
                    self.listening.clear()
                    await session.close()
                    self._lost()
            # Also after a connection that could not listen, such as one to a standby.
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _serve(self, session: Session) -> None:
        # These transactions only carry notifications, and need not wait for the disk.
        await session.fetch("SELECT set_config('synchronous_commit', 'off', false)")
        session.raw.add_termination_listener(lambda _: self._news.set())
        # Notifications may still be handed over once the connection is closed, and then it has no id any more.
        self._pid = session.raw.get_server_pid()
        await session.listen(READY, self._heard)
        await session.listen(QUEUE, self._changed)
        for channel in self._topics:
            await session.listen(channel, self._heard_words)
        # Whatever was changed before we listened may be in the cache.
        self._cache.clear()
        self.listening.set()
        while session.usable:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._news.wait()
            except TimeoutError:
                # A connection that nobody uses may be dead without anybody knowing.
                await session.fetch("SELECT 1")
            self._news.clear()
            arrived, self._arrived = self._arrived, {}
            queues = list(arrived.items())
            for first in range(0, len(queues), PAYLOAD_QUEUES_MAX):
                told = queues[first : first + PAYLOAD_QUEUES_MAX]
                payload = ",".join(f"{queue_id}:{count}" for queue_id, count in told)
                await session.fetch("SELECT pg_notify($1, $2)", READY, payload)
            await self._tell_words(session)
            await asyncio.sleep(INTERVAL_S)

    async def _tell_words(self, session: Session) -> None:
        for channel in self._topics:
            words = list(self._words[channel])
            self._words[channel].clear()
            for first in range(0, len(words), PAYLOAD_WORDS_MAX):
                payload = ",".join(words[first : first + PAYLOAD_WORDS_MAX])
                await session.fetch("SELECT pg_notify($1, $2)", channel, payload)

    def _heard_words(self, _connection: object, pid: int, channel: str, payload: object) -> None:
        if pid != self._pid:
            for word in str(payload).split(","):
                self._topics[channel](word)

    def _report(self, queue_id: int, count: int) -> None:
        for ready in self._listeners:
            ready(queue_id, count)

    def _heard(self, _connection: object, pid: int, _channel: str, payload: object) -> None:
        if pid == self._pid:
            return
        for part in str(payload).split(","):
            queue_id, count = part.split(":")
            self._report(int(queue_id), int(count))

    def _changed(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._cache.hear(str(payload))
