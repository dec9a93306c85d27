"""Message move tasks as the port tells them, beside the model of queues that they move messages between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.move import MoveFailure, MoveStatus, MoveTask

if TYPE_CHECKING:
    from tests.simulation.model import Model, ModelMessage, ModelQueue

IDLE_MS = 100
"""How long a step that moved nothing may put the next one off."""


@dataclass(eq=False)
class ModelMove:
    """One task as the store told it last, and when its next step is due: surely not before, surely from then on."""

    task: MoveTask
    source: ModelQueue
    destination: ModelQueue | None
    due_at_ms: int
    overdue_at_ms: int

    @property
    def running(self) -> bool:
        return self.task.status is MoveStatus.RUNNING


class ModelMoves:
    """All tasks ever started, oldest first."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.all: list[ModelMove] = []

    def running(self, source: ModelQueue) -> ModelMove | None:
        return next((move for move in self.all if move.running and move.source is source), None)

    def start(self, task: MoveTask, source: ModelQueue, destination: ModelQueue | None, rate: int | None) -> None:
        assert self.running(source) is None, "one task at a time for a queue"
        now_ms = self.model.now_ms
        visible = source.counts(now_ms).visible
        assert len(source.leasable(now_ms)) <= task.to_move <= visible
        assert task == MoveTask(
            id=task.id,
            source=source.queue.name,
            destination=None if destination is None else destination.queue.name,
            rate=rate,
            status=MoveStatus.RUNNING,
            moved=0,
            to_move=task.to_move,
            started_at_ms=now_ms,
        )
        self.all.append(ModelMove(task, source, destination, now_ms, now_ms))

    def cancel(self, move: ModelMove, task: MoveTask) -> None:
        assert task == msgspec.structs.replace(move.task, status=MoveStatus.CANCELLED)
        move.task = task

    def step(self, move: ModelMove, task: MoveTask, left: set[str] | None) -> None:
        """Take over one step. `left` holds the bodies that can still be leased, where not all or none were moved."""
        now_ms = self.model.now_ms
        leasable = move.source.leasable(now_ms)
        count = task.moved - move.task.moved
        if now_ms < move.overdue_at_ms and task == move.task:
            return
        assert now_ms >= move.due_at_ms, "a step before its time"
        bound = self._bound(move)
        assert 0 <= count <= bound
        moved = [message for message in leasable if left is None or message.body not in left] if count else []
        assert len(moved) == count, "the progress told is the progress made"
        for message in moved:
            older = [other for other in leasable[: leasable.index(message)] if other.group == message.group]
            assert not move.source.queue.fifo or set(older) <= set(moved), "a group is moved in order"
            self.model.move([message], move.source, self._destination(move, message))
        self._check_status(move, task, leasable, count)
        move.task = task
        pace_ms = 0.0 if task.rate is None else 1_000 / task.rate
        move.due_at_ms = now_ms + int(count * pace_ms)
        move.overdue_at_ms = (
            now_ms + math.ceil(bound * pace_ms) if count else now_ms + max(IDLE_MS, int(bound * pace_ms))
        )

    def check_due(self, due_in_ms: int | None) -> None:
        """Judge what `advance_moves` said about its next call."""
        running = [move for move in self.all if move.running]
        if not running:
            assert due_in_ms is None
            return
        assert due_in_ms is not None
        now_ms = self.model.now_ms
        assert due_in_ms <= max(0, min(move.overdue_at_ms for move in running) - now_ms)
        assert due_in_ms >= max(0, min(move.due_at_ms for move in running) - now_ms)

    def _bound(self, move: ModelMove) -> int:
        rows_max = self.model.limits.sweep_rows_max
        return rows_max if move.task.rate is None else min(rows_max, max(1, move.task.rate // 10))

    def _destination(self, move: ModelMove, message: ModelMessage) -> ModelQueue:
        if move.destination is not None:
            return move.destination
        return next(kept for kept in self.model.queues if kept.queue.name.arn == message.dead_letter_source)

    def _check_status(self, move: ModelMove, task: MoveTask, leasable: list[ModelMessage], count: int) -> None:
        remaining = move.source.leasable(self.model.now_ms)
        failure = None
        if task.status is MoveStatus.COMPLETED:
            assert not remaining, "a task ends when nothing is left"
        elif task.status is MoveStatus.FAILED:
            assert move.destination is None
            assert any(message.dead_letter_source is None for message in remaining)
            failure = MoveFailure.SOURCE_UNKNOWN
        else:
            # A step that spends its bound on messages that are expired and not swept does less, and goes on later.
            assert leasable or move.source.expired, "a task with nothing left to move has ended"
            share = min(self._bound(move), len(leasable))
            assert count == share or move.source.expired, "a step that is due does its share"
        changes = {"status": task.status, "moved": task.moved, "failure": failure}
        assert task == msgspec.structs.replace(move.task, **changes)
