"""Leasing: what many callers ask for is given out by one call; on standard queues as one lot, which is shared out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import OverLimit, PenstockError, QueueDoesNotExist
from penstock.domain.message import Message
from penstock.store.codec import decode_attributes
from penstock.store.port import Leased
from penstock.store.postgres.lanes import Done, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import asyncpg

    from penstock.domain.limits import Limits
    from penstock.domain.queue import Queue
    from penstock.store.postgres.counts import InFlight
    from penstock.store.postgres.floor import Floors
    from penstock.store.postgres.lanes import Batch
    from penstock.store.postgres.pinned import PinnedClock
    from penstock.store.postgres.pool import Session

_LEASE = "SELECT * FROM penstock.lease($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
_LEASE_FIFO = "SELECT * FROM penstock.lease_fifo($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"


class Lease(Operation[Leased]):
    """One lease. With an attempt key it may wait for another of the same key, and so goes alone."""

    verb = "lease"

    def __init__(self, queue: Queue, count: int, lease_ms: int, attempt: bytes | None) -> None:
        super().__init__()
        self.queue = queue
        self.count = count
        self.lease_ms = lease_ms
        self.attempt = attempt
        self.rows = count
        self.alone = attempt is not None


class _Request:
    """What is asked of the database for one lease, or for several alike."""

    def __init__(self, lease: Lease, key: bytes) -> None:
        self.key = key
        self.queue = lease.queue
        self.lease_ms = lease.lease_ms
        self.leases = [lease]

    @property
    def count(self) -> int:
        return sum(lease.count for lease in self.leases)


class Leases:
    """Carries out leases."""

    def __init__(
        self, clock: PinnedClock, limits: Limits, *, floors: Floors, in_flight: InFlight, new_key: Callable[[], bytes]
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._floors = floors
        self._in_flight = in_flight
        self._new_key = new_key

    async def standard(self, session: Session, batch: Batch[Lease]) -> Done[Leased]:
        """Lease from standard queues."""
        if batch.plan is None:
            batch.plan = self._merged(batch.operations)
        return await self._lease(session, _LEASE, self._limits.in_flight_standard_max, batch)

    async def fifo(self, session: Session, batch: Batch[Lease]) -> Done[Leased]:
        """Lease from FIFO queues: one request for each, or a group would be shared out among consumers."""
        if batch.plan is None:
            by_queue = sorted(batch.operations, key=lambda lease: lease.queue.id)
            batch.plan = [_Request(lease, lease.attempt or self._new_key()) for lease in by_queue]
        return await self._lease(session, _LEASE_FIFO, self._limits.in_flight_fifo_max, batch)

    def _merged(self, leases: Sequence[Lease]) -> list[_Request]:
        requests: dict[object, _Request] = {}
        for lease in sorted(leases, key=lambda lease: lease.queue.id):
            redrive = lease.queue.attributes.redrive
            alike = (lease.queue.id, lease.lease_ms, lease.queue.retention_ms, redrive)
            if alike in requests:
                requests[alike].leases.append(lease)
            else:
                requests[alike] = _Request(lease, lease.attempt or self._new_key())
        return list(requests.values())

    async def _lease(self, session: Session, statement: str, in_flight_max: int, batch: Batch[Lease]) -> Done[Leased]:
        requests = batch.plan
        assert isinstance(requests, list)
        queues: list[Queue] = [request.queue for request in requests]
        redrives = [queue.attributes.redrive for queue in queues]
        floors = [self._floors.of(queue.id) for queue in queues]
        rows = await session.fetch(
            statement,
            self._clock.pinned_ms,
            self._limits.outcome_window_ms,
            in_flight_max,
            [request.key for request in requests],
            [batch.repeated or request.leases[0].attempt is not None for request in requests],
            [queue.id for queue in queues],
            [request.count for request in requests],
            [request.lease_ms for request in requests],
            [queue.retention_ms for queue in queues],
            [None if redrive is None else redrive.max_receive_count for redrive in redrives],
            [None if redrive is None else redrive.dead_letter_queue.arn for redrive in redrives],
            [queue.name.arn for queue in queues],
            [floor.partition for floor in floors],
            [floor.at_ms for floor in floors],
            [self._in_flight.doubtful(queue.id, in_flight_max) for queue in queues],
        )
        answers: dict[Lease, Leased | PenstockError] = {}
        arrived: dict[int, int] = {}
        for messages, told in _by_request(rows, fifo=queues[0].fifo):
            request: _Request = requests[told["request"] - 1]
            self._learn(request, messages, told)
            if told["moved"]:
                arrived[told["dead_letter_queue"]] = arrived.get(told["dead_letter_queue"], 0) + told["moved"]
            answers.update(_shared_out(request.leases, messages, told, in_flight_max))
        return Done([answers[lease] for lease in batch.operations], arrived)

    def _learn(self, request: _Request, messages: Sequence[Message], told: asyncpg.Record) -> None:
        self._in_flight.leased(request.queue.id, len(messages), counted=told["in_flight"])
        if not told["missing"]:
            self._floors.seen(request.queue.id, told["partition"], fifo=request.queue.fifo)


def _by_request(rows: Sequence[asyncpg.Record], *, fifo: bool) -> Iterator[tuple[list[Message], asyncpg.Record]]:
    """Gather the messages of each request; the row that tells about the request as a whole comes after them."""
    messages: list[Message] = []
    for row in rows:
        if row["position"] is None:
            yield messages, row
            messages = []
        else:
            messages.append(_message(row, fifo=fifo))


def _message(row: asyncpg.Record, *, fifo: bool) -> Message:
    # By number, in the order in which the functions return them: this is done for every message.
    attributes, trace_header = decode_attributes(row[9])
    return Message(
        position=row[1],
        receipt=row[2],
        receive_count=row[3],
        sent_at_ms=row[4],
        first_received_at_ms=row[5],
        dead_letter_source=row[6],
        message_id=row[7],
        body=row[8],
        attributes=attributes,
        trace_header=trace_header,
        sender=row[10] or "",
        group=row[11],
        deduplication_id=row[12],
        sequence=row[1] if fifo else None,
    )


def _shared_out(
    leases: Sequence[Lease], messages: Sequence[Message], told: asyncpg.Record, in_flight_max: int
) -> Iterator[tuple[Lease, Leased | PenstockError]]:
    """Give each lease what it asked for, in the order in which they came, as far as the messages go."""
    if told["missing"]:
        for lease in leases:
            yield lease, QueueDoesNotExist("The specified queue does not exist.")
        return
    full = told["in_flight"] is not None and told["in_flight"] + len(messages) >= in_flight_max
    given = 0
    for lease in leases:
        share = list(messages[given : given + lease.count])
        given += len(share)
        if full and not share:
            yield lease, OverLimit(f"The maximum number of in flight messages is reached: {in_flight_max}.")
        else:
            yield lease, Leased(share, told["next_in"])
