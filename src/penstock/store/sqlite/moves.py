"""Message move tasks: started, cancelled, listed, and done step by step at their rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from penstock.domain.errors import QueueDoesNotExist
from penstock.domain.limits import SECOND_MS
from penstock.domain.move import MoveFailure, MoveStatus, MoveTask
from penstock.domain.queue import QueueName
from penstock.store.refusals import move_running, no_move
from penstock.store.sqlite.rows import ONE_ROW, ROWS_PER_PAGE, Row
from penstock.store.sqlite.screen import BYTES_PER_PASS_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.domain.ids import IdSource
    from penstock.domain.limits import Limits
    from penstock.domain.queue import Queue
    from penstock.store.sqlite.arrivals import Arrivals, MessageRow
    from penstock.store.sqlite.contents import Contents, ContentsTable
    from penstock.store.sqlite.deliveries import Deliveries
    from penstock.store.sqlite.leases import Leases
    from penstock.store.sqlite.queues import Queues
    from penstock.store.sqlite.screen import Screen
    from penstock.store.sqlite.standard import Ungrouped
    from penstock.store.sqlite.transaction import Transaction

STEPS_PER_SECOND = 10

_COLUMNS = "id, source, destination, rate, status, moved, to_move, started_at_ms, failure"

_START = f"""
INSERT INTO move_task
    (id, source_id, destination_id, source, destination, rate, permitted, status, moved, to_move, started_at_ms,
    due_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, 'RUNNING', 0, ?, ?9, ?9)
RETURNING {_COLUMNS}
"""  # noqa: S608  # Our own text.

_CANCEL = f"""
UPDATE move_task SET status = 'CANCELLED' WHERE id = ? AND status = 'RUNNING' RETURNING {_COLUMNS}
"""  # noqa: S608  # Our own text.

_LIST = f"SELECT {_COLUMNS} FROM move_task WHERE source_id = ? ORDER BY number DESC LIMIT ?"  # noqa: S608  # Our own text.

_FORGET = """
DELETE FROM move_task
WHERE source_id = ?1 AND status <> 'RUNNING'
    AND number NOT IN (SELECT number FROM move_task WHERE source_id = ?1 ORDER BY number DESC LIMIT ?2)
"""

_DUE = """
SELECT number, source_id, destination_id, rate, permitted FROM move_task
WHERE status = 'RUNNING' AND due_at_ms <= ? ORDER BY due_at_ms, number
"""

_NEXT_DUE = "SELECT min(due_at_ms) FROM move_task WHERE status = 'RUNNING'"

_ADVANCE = "UPDATE move_task SET moved = moved + ?, status = ?, failure = ?, due_at_ms = ? WHERE number = ?"

_GROUPED = """
SELECT d.position, g.name
FROM message_group AS g CROSS JOIN delivery AS d ON d.group_id = g.id AND d.group_id > 0 AND d.state = 0
WHERE g.partition = ? AND g.ready_at_ms IS NULL AND g.head IS NOT NULL
LIMIT ?
"""


class _Running(NamedTuple):
    number: int
    source_id: int
    destination_id: int | None
    rate: int | None
    permitted: frozenset[str] | None

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Self:
        """Read a task from its row."""
        permitted = row[4]
        return cls._make((*row[:4], None if permitted is None else msgspec.json.decode(permitted, type=frozenset[str])))


class _Step:
    """What one step of a task takes from its source and puts elsewhere, up to about `bytes_left`."""

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left
        self.taken: list[tuple[int, int | None, int | None]] = []
        self.stored: list[MessageRow] = []
        self.arrived: dict[int, int] = {}
        self.failure: MoveFailure | None = None


class Moves:
    """The move tasks of all queues."""

    def __init__(
        self,
        transaction: Transaction,
        contents: ContentsTable,
        queues: Queues,
        arrivals: Arrivals,
        deliveries: Deliveries,
        leases: Leases,
        ids: IdSource,
        limits: Limits,
    ) -> None:
        self._transaction = transaction
        self._db = transaction.db
        self._contents = contents
        self._queues = queues
        self._arrivals = arrivals
        self._deliveries = deliveries
        self._leases = leases
        self._ids = ids
        self._limits = limits

    def start(
        self,
        task_id: str,
        source: Queue,
        destination: Queue | None,
        rate: int | None,
        permitted: Collection[QueueName] | None,
    ) -> MoveTask:
        """Begin a task, unless one is running for its source; forget old ones of this source."""
        contents = self._leases.settle(source)
        if destination is not None:
            self._contents.of(destination.id)
        running = "SELECT 1 FROM move_task WHERE source_id = ? AND status = 'RUNNING'"
        if self._db.execute(running, (source.id,)).get is not None:
            raise move_running()
        row = self._db.execute(
            _START,
            (
                task_id,
                source.id,
                None if destination is None else destination.id,
                source.name.arn,
                None if destination is None else destination.name.arn,
                rate,
                None if permitted is None else msgspec.json.encode([name.arn for name in permitted]).decode(),
                contents.visible,
                self._transaction.now_ms,
            ),
        ).fetchone()
        assert row is not None
        self._db.execute(_FORGET, (source.id, self._limits.moves_kept_per_queue_max))
        return _task(row)

    def cancel(self, task_id: str) -> MoveTask:
        """Stop a running task."""
        row = self._db.execute(_CANCEL, (task_id,)).fetchone()
        if row is None:
            raise no_move()
        return _task(row)

    def page(self, source: Queue, limit: int) -> list[MoveTask]:
        """Return the tasks of a queue, newest first."""
        self._contents.of(source.id)
        return [_task(row) for row in self._db.execute(_LIST, (source.id, limit))]

    def advance(self) -> int | None:
        """Do a step of the tasks that are due, all together within one step's bound; the others stay due."""
        now_ms = self._transaction.now_ms
        rows_left, bytes_left = self._limits.sweep_rows_max, BYTES_PER_PASS_MAX
        for row in list(self._db.execute(_DUE, (now_ms,))):
            if rows_left <= 0 or bytes_left <= 0:
                break
            step = self._advance(_Running.of(row), rows_left, bytes_left)
            rows_left, bytes_left = rows_left - len(step.taken), step.bytes_left
        due_at_ms: int | None = self._db.execute(_NEXT_DUE).get
        return None if due_at_ms is None else max(0, due_at_ms - now_ms)

    def _advance(self, task: _Running, rows_max: int, bytes_max: int) -> _Step:
        """Do one step, and return it."""
        now_ms = self._transaction.now_ms
        count = rows_max if task.rate is None else min(rows_max, max(1, task.rate // STEPS_PER_SECOND))
        source = self._queues.by_id(task.source_id)
        contents = self._contents.change(self._leases.settle(source).queue_id)
        # It is taken to be moved, not to be delivered: receive counts do not matter.
        alive = msgspec.structs.replace(source, attributes=msgspec.structs.replace(source.attributes, redrive=None))
        screen = self._leases.screen(alive, contents)
        step = _Step(bytes_max)
        for row, group, ungrouped in self._visible(screen, count):
            if not self._move(task, row, group, step):
                break
            if ungrouped is not None:
                ungrouped.take(1)
            if step.bytes_left <= 0:
                break
        self._arrivals.store(step.stored)
        self._deliveries.remove(contents, step.taken)
        for queue_id, arrived in step.arrived.items():
            self._transaction.wake(queue_id, arrived)

        moved = len(step.taken)
        status = MoveStatus.RUNNING
        if step.failure is not None:
            status = MoveStatus.FAILED
        elif not (screen.cut or self._leases.unsettled(source, contents)):
            ran_out = moved < count and step.bytes_left > 0
            status = MoveStatus.COMPLETED if ran_out or not contents.visible else MoveStatus.RUNNING
        pause_ms = 0 if task.rate is None else -(-moved * SECOND_MS // task.rate)
        self._db.execute(_ADVANCE, (moved, status, step.failure, now_ms + pause_ms, task.number))
        return step

    def _visible(self, screen: Screen, count: int) -> Iterator[tuple[Row, str | None, Ungrouped | None]]:
        """Give up to `count` visible messages with their groups, and where a message without a group is taken from."""
        if screen.contents.fifo:
            for _, group, rows in self._leases.fifo(screen).visible(count):
                yield from ((Row._make(row), group, None) for row in rows)
            return
        ungrouped = self._leases.ungrouped(screen)
        while count > 0 and (plain := ungrouped.peek(min(count, ROWS_PER_PAGE))) is not None:
            yield Row._make(plain), None, ungrouped
            count -= 1
        if count > 0 and screen.contents.groups:
            for position, group in list(self._db.execute(_GROUPED, (screen.contents.partition, count))):
                columns = self._db.execute(ONE_ROW, (position,)).fetchone()
                assert columns is not None
                row = Row._make(columns)
                if screen.sift([row], group):
                    yield row, group, None

    def _move(self, task: _Running, row: Row, group: str | None, step: _Step) -> bool:
        """Move one message, or note why that cannot be."""
        source = row.dead_letter_source
        if task.permitted is not None and source is not None and source not in task.permitted:
            step.failure = MoveFailure.DESTINATION_NOT_PERMITTED
            return False
        try:
            target = self._target(task, row)
        except QueueDoesNotExist:
            step.failure = MoveFailure.DESTINATION_DOES_NOT_EXIST
            return False
        if target is None:
            step.failure = MoveFailure.SOURCE_UNKNOWN
            return False
        step.stored.append(
            row.moved(
                self._arrivals.place(target, (group or "") if target.fifo else group),
                message_id=self._ids.new_id(),
                sent_at_ms=self._transaction.now_ms,
                dead_letter_source=None,
            )
        )
        step.taken.append(row.delivery)
        step.bytes_left -= len(row.body)
        step.arrived[target.queue_id] = step.arrived.get(target.queue_id, 0) + 1
        return True

    def _target(self, task: _Running, row: Row) -> Contents | None:
        """Return the contents that a message goes to; None if the message is to go back and came from nowhere."""
        if task.destination_id is not None:
            return self._contents.change(task.destination_id)
        if row.dead_letter_source is None:
            return None
        queue_id = self._queues.id_of(QueueName.from_arn(row.dead_letter_source))
        if queue_id is None:
            raise QueueDoesNotExist(row.dead_letter_source)
        return self._contents.change(queue_id)


def _task(row: tuple[Any, ...]) -> MoveTask:
    task_id, source, destination, rate, status, moved, to_move, started_at_ms, failure = row
    return MoveTask(
        id=task_id,
        source=QueueName.from_arn(source),
        destination=None if destination is None else QueueName.from_arn(destination),
        rate=rate,
        status=MoveStatus(status),
        moved=moved,
        to_move=to_move,
        started_at_ms=started_at_ms,
        failure=None if failure is None else MoveFailure(failure),
    )
