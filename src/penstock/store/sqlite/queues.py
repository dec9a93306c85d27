"""Queues by name and id: made, changed, listed, emptied and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.domain.errors import PurgeInProgress, QueueDeletedRecently, QueueDoesNotExist
from penstock.domain.limits import SECOND_MS
from penstock.domain.queue import Queue, QueueName
from penstock.store.codec import decode_queue_attributes, decode_tags, encode_queue_attributes, encode_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.domain.limits import Limits
    from penstock.domain.queue import QueueAttributes
    from penstock.store.sqlite.contents import ContentsTable
    from penstock.store.sqlite.transaction import Transaction

QUEUES_CACHED_MAX = 20_000

_COLUMNS = "id, region, account, name, attributes, tags, created_at_ms, modified_at_ms, revision"

_FIND = f"SELECT {_COLUMNS} FROM queue WHERE region = ? AND account = ? AND name = ?"  # noqa: S608  # Our own text.

_BY_ID = f"SELECT {_COLUMNS} FROM queue WHERE id = ?"  # noqa: S608  # Our own text.

_LIST = f"""
SELECT {_COLUMNS} FROM queue
WHERE region = ?1 AND account = ?2 AND name > ?3 AND name >= ?4 AND name < ?4 || char(1114111)
ORDER BY name LIMIT ?5
"""  # noqa: S608  # Our own text.

_NEXT_PLACE = """
SELECT region, account FROM queue WHERE (region, account) > (?, ?) ORDER BY region, account LIMIT 1
"""

_SOURCES = f"SELECT {_COLUMNS} FROM queue WHERE dead_letter_arn = ? AND name > ? ORDER BY name LIMIT ?"  # noqa: S608  # Our own text.

_CREATE = """
INSERT INTO queue
    (region, account, name, partition, attributes, tags, retention_ms, dead_letter_arn, created_at_ms, modified_at_ms,
     revision)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
RETURNING id
"""

_SAVE = """
UPDATE queue
SET attributes = ?, tags = ?, retention_ms = ?, dead_letter_arn = ?, modified_at_ms = ?, revision = ?
WHERE id = ?
"""


class Queues:
    """The queues. `known` keeps the committed ones that were asked for, for who does not care to wait for a commit."""

    def __init__(self, transaction: Transaction, contents: ContentsTable, limits: Limits) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._contents = contents
        self._limits = limits
        self.known: dict[QueueName, Queue] = {}
        self._read: dict[QueueName, Queue] = {}
        """As this transaction sees them; `known` from its commit on."""
        self._stale: set[QueueName] = set()
        """Changed in this transaction, and not in `_read`."""

    # -- reading ----------------------------------------------------------------------------------

    def find(self, name: QueueName) -> Queue:
        """Return a queue, or raise `QueueDoesNotExist`."""
        row = self._db.execute(_FIND, (name.region, name.account, name.name)).fetchone()
        if row is None:
            message = "The specified queue does not exist."
            raise QueueDoesNotExist(message)
        queue = self._read[name] = _queue(row)
        return queue

    def by_id(self, queue_id: int) -> Queue:
        """Return a queue that exists."""
        row = self._db.execute(_BY_ID, (queue_id,)).fetchone()
        assert row is not None
        return _queue(row)

    def id_of(self, name: QueueName) -> int | None:
        """Return the id of the queue that has a name now, if there is one."""
        queue_id: int | None = self._db.execute(
            "SELECT id FROM queue WHERE region = ? AND account = ? AND name = ?", (name.region, name.account, name.name)
        ).get
        return queue_id

    def page(self, region: str, account: str, prefix: str, after: str, limit: int) -> list[Queue]:
        """Return queues in the order of their names."""
        return [_queue(row) for row in self._db.execute(_LIST, (region, account, after, prefix, limit))]

    def places(self, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
        """Return regions and accounts that have queues, each found by a step in the index."""
        places: list[tuple[str, str]] = []
        while len(places) < limit and (row := self._db.execute(_NEXT_PLACE, after).fetchone()):
            after = (row[0], row[1])
            places.append(after)
        return places

    def dead_letter_sources(self, name: QueueName, after: str, limit: int) -> list[Queue]:
        """Return the queues whose dead letters go to this one."""
        return [_queue(row) for row in self._db.execute(_SOURCES, (name.arn, after, limit))]

    # -- changing ---------------------------------------------------------------------------------

    def create(self, name: QueueName, attributes: QueueAttributes, tags: Mapping[str, str]) -> tuple[Queue, bool]:
        """Make a queue, or return the one that has this name."""
        try:
            return self.find(name), False
        except QueueDoesNotExist:
            pass
        now_ms = self._transaction.now_ms
        key = (name.region, name.account, name.name)
        deleted_at_ms = self._db.execute(
            "SELECT deleted_at_ms FROM deleted_name WHERE region = ? AND account = ? AND name = ?", key
        ).get
        reuse_ms = self._limits.name_reuse_ms
        # Without a wait, a name is free at once, also where the clock has gone back since.
        if deleted_at_ms is not None and reuse_ms and now_ms < deleted_at_ms + reuse_ms:
            seconds = reuse_ms // SECOND_MS
            message = (
                f"You must wait {seconds} seconds after deleting a queue "
                "before you can create another with the same name."
            )
            raise QueueDeletedRecently(message)
        partition = self._contents.make()
        settings = self._settings(attributes, tags)
        wall_ms = self._transaction.wall_ms
        queue_id = self._db.execute(_CREATE, (*key, partition, *settings, wall_ms, wall_ms)).get
        queue = self._read[name] = Queue(
            id=queue_id,
            name=name,
            attributes=attributes,
            tags=dict(tags),
            created_at_ms=wall_ms,
            modified_at_ms=wall_ms,
            revision=1,
        )
        return queue, True

    def save(self, queue: Queue, attributes: QueueAttributes | None, tags: Mapping[str, str] | None) -> Queue | None:
        """Replace attributes or tags, if the queue is still as `queue` says."""
        revision = self._revision(queue)
        if revision != queue.revision:
            return None
        saved = self._read[queue.name] = Queue(
            id=queue.id,
            name=queue.name,
            attributes=queue.attributes if attributes is None else attributes,
            tags=queue.tags if tags is None else dict(tags),
            created_at_ms=queue.created_at_ms,
            modified_at_ms=self._transaction.wall_ms,
            revision=revision + 1,
        )
        settings = self._settings(saved.attributes, saved.tags)
        self._db.execute(_SAVE, (*settings, saved.modified_at_ms, saved.revision, saved.id))
        return saved

    def delete(self, queue: Queue) -> None:
        """Delete a queue; its messages are left to the sweeper."""
        self._contents.discard(self._contents.of(queue.id))
        name = queue.name
        self._db.execute("DELETE FROM queue WHERE id = ?", (queue.id,))
        self._db.execute("DELETE FROM move_task WHERE source_id = ?", (queue.id,))
        self._db.execute(
            "INSERT OR REPLACE INTO deleted_name (region, account, name, deleted_at_ms) VALUES (?, ?, ?, ?)",
            (name.region, name.account, name.name, self._transaction.now_ms),
        )
        self._read.pop(name, None)
        self._stale.add(name)

    def purge(self, queue: Queue) -> None:
        """Give a queue empty contents; the old ones are left to the sweeper."""
        contents = self._contents.of(queue.id)
        now_ms = self._transaction.now_ms
        purged_at_ms = self._db.execute("SELECT purged_at_ms FROM queue WHERE id = ?", (queue.id,)).get
        if purged_at_ms is not None and now_ms < purged_at_ms + self._limits.purge_interval_ms:
            seconds = self._limits.purge_interval_ms // SECOND_MS
            message = f"Only one PurgeQueue operation on {queue.name.name} is allowed every {seconds} seconds."
            raise PurgeInProgress(message)
        partition = self._contents.make(contents.sequence)
        self._contents.discard(contents)
        self._db.execute(
            "UPDATE queue SET partition = ?, purged_at_ms = ?, purged_up_to = ? WHERE id = ?",
            (partition, now_ms, contents.sequence, queue.id),
        )

    # -- following transactions -------------------------------------------------------------------

    def committed(self) -> None:
        """Let everyone see what this transaction changed."""
        for name in self._stale:
            self.known.pop(name, None)
        self._stale.clear()
        if self._read:
            self.known.update(self._read)
            self._read.clear()
            while len(self.known) > QUEUES_CACHED_MAX:
                del self.known[next(iter(self.known))]

    def drop(self) -> None:
        """Forget what this transaction saw. Other calls of it may still be committed, so nothing of it stays known."""
        self._stale.update(self._read)
        self._read.clear()

    def _revision(self, queue: Queue) -> int:
        revision: int | None = self._db.execute("SELECT revision FROM queue WHERE id = ?", (queue.id,)).get
        if revision is None:
            message = "The specified queue does not exist."
            raise QueueDoesNotExist(message)
        return revision

    def _settings(self, attributes: QueueAttributes, tags: Mapping[str, str]) -> tuple[str, str, int, str | None]:
        redrive = attributes.redrive
        return (
            encode_queue_attributes(attributes),
            encode_tags(tags),
            attributes.retention_s * SECOND_MS,
            None if redrive is None else redrive.dead_letter_queue.arn,
        )


def _queue(row: tuple[Any, ...]) -> Queue:
    queue_id, region, account, name, attributes, tags, created_at_ms, modified_at_ms, revision = row
    return Queue(
        id=queue_id,
        name=QueueName(region, account, name),
        attributes=decode_queue_attributes(attributes),
        tags=decode_tags(tags),
        created_at_ms=created_at_ms,
        modified_at_ms=modified_at_ms,
        revision=revision,
    )
