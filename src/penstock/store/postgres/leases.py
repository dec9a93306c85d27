"""Leasing: what many callers ask for is given out by one call; on standard queues as one lot, which is shared out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError, QueueDoesNotExist
from penstock.domain.message import Message
from penstock.store.codec import decode_attributes
from penstock.store.port import FULL_AGAIN_MS, Leased
from penstock.store.postgres.lanes import Done, Operation
from penstock.store.refusals import over_limit

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

_ARGUMENTS = ", ".join(f"${number}" for number in range(1, 21))
_LEASE = f"SELECT * FROM penstock.lease({_ARGUMENTS})"  # noqa: S608 # Numbers of arguments.
_LEASE_FIFO = f"SELECT * FROM penstock.lease_fifo({_ARGUMENTS})"  # noqa: S608 # As above.


class Lease(Operation[Leased]):
    """One lease. Two with the same attempt key never go together: the second is to find what the first was given."""

    verb = "lease"

    def __init__(
        self,
        queue: Queue,
        count: int,
        lease_ms: int,
        attempt: bytes | None,
        retry: int,
        give_back: Callable[[Queue, Leased], None],
    ) -> None:
        super().__init__()
        self._give_back = give_back
        self.queue = queue
        self.count = count
        self.lease_ms = lease_ms
        self.attempt = attempt
        self.retry = retry
        self.rows = count
        self.key = attempt

    def abandoned(self, answer: Leased) -> None:
        """Give back what was leased."""
        if answer.messages:
            self._give_back(self.queue, answer)


class _Request:
    """What is asked of the database for one lease, or for several alike."""

    def __init__(self, lease: Lease) -> None:
        self.queue = lease.queue
        self.lease_ms = lease.lease_ms
        self.leases = [lease]
        self.kind = (lease.queue.id, lease.lease_ms, lease.queue.retention_ms, lease.queue.attributes.redrive)
        """What is the same of all its leases."""

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
        """Lease from standard queues: one request for all that are alike, unless outcomes are looked for."""
        requests = _apart(batch.operations) if _again(batch) else _merged(batch.operations)
        return await self._lease(session, _LEASE, self._limits.in_flight_standard_max, batch, requests)

    async def fifo(self, session: Session, batch: Batch[Lease]) -> Done[Leased]:
        """Lease from FIFO queues: one request for each, or a group would be shared out among consumers."""
        requests = _apart(batch.operations)
        return await self._lease(session, _LEASE_FIFO, self._limits.in_flight_fifo_max, batch, requests)

    async def _lease(
        self, session: Session, statement: str, in_flight_max: int, batch: Batch[Lease], requests: Sequence[_Request]
    ) -> Done[Leased]:
        if batch.plan is None:
            batch.plan = {lease: lease.attempt or self._new_key() for lease in batch.operations}
        keys = batch.plan
        assert isinstance(keys, dict)
        leases = [(lease, number) for number, request in enumerate(requests, 1) for lease in request.leases]
        queues: list[Queue] = [request.queue for request in requests]
        redrives = [queue.attributes.redrive for queue in queues]
        floors = [self._floors.of(queue.id) for queue in queues]
        clock = asyncio.get_running_loop().time
        began_s = clock()
        rows = await session.fetch(
            statement,
            self._clock.pinned_ms,
            self._limits.outcome_window_ms,
            in_flight_max,
            batch.attempt,
            [keys[lease] for lease, _ in leases],
            [lease.attempt is not None for lease, _ in leases],
            [None if lease.attempt is None else lease.retry for lease, _ in leases],
            [number for _, number in leases],
            [lease.count for lease, _ in leases],
            _again(batch),
            [queue.id for queue in queues],
            [request.count for request in requests],
            [request.lease_ms for request in requests],
            [queue.retention_ms for queue in queues],
            [None if redrive is None else redrive.max_receive_count for redrive in redrives],
            [None if redrive is None else redrive.dead_letter_queue.arn for redrive in redrives],
            [queue.name.arn for queue in queues],
            [floor.partition for floor in floors],
            [[floor.at_ms, floor.returned_at_ms] for floor in floors],
            [self._in_flight.doubtful(queue.id, in_flight_max) for queue in queues],
        )
        took_s = clock() - began_s
        answers: dict[Lease, Leased | PenstockError] = {}
        arrived: dict[int, int] = {}
        for messages, told in _by_request(rows, fifo=queues[0].fifo):
            request = requests[told["request"] - 1]
            self._learn(request, messages, told, took_s)
            if told["moved"]:
                arrived[told["dead_letter_queue"]] = arrived.get(told["dead_letter_queue"], 0) + told["moved"]
            answers.update(_shared_out(request.leases, messages, told, in_flight_max))
        return Done([answers[lease] for lease in batch.operations], arrived)

    def _learn(self, request: _Request, messages: Sequence[Message], told: asyncpg.Record, took_s: float) -> None:
        self._in_flight.leased(request.queue.id, len(messages), counted=told["in_flight"], took_s=took_s)
        if not told["missing"]:
            self._floors.seen(request.queue.id, told["partition"], fifo=request.queue.fifo)


def _again(batch: Batch[Lease]) -> bool:
    """Tell whether outcomes are looked for: of a batch that may have been committed, and of a lease by itself."""
    return batch.repeated or (len(batch.operations) == 1 and batch.operations[0].attempt is not None)


def _apart(leases: Sequence[Lease]) -> list[_Request]:
    return [_Request(lease) for lease in sorted(leases, key=lambda lease: lease.queue.id)]


def _merged(leases: Sequence[Lease]) -> list[_Request]:
    """Make one request of leases that are alike and follow each other: who came first is served first."""
    requests: list[_Request] = []
    for request in _apart(leases):
        if requests and requests[-1].kind == request.kind:
            requests[-1].leases += request.leases
        else:
            requests.append(request)
    return requests


def _by_request(rows: Sequence[asyncpg.Record], *, fifo: bool) -> Iterator[tuple[list[Message], asyncpg.Record]]:
    """Gather the messages of each request; the row that tells about the request as a whole comes after them."""
    messages: list[Message] = []
    for row in rows:
        if row["position"] is None:
            yield messages, row
            messages = []
        else:
            messages.append(message_of(row, fifo=fifo))


def message_of(row: asyncpg.Record, *, fifo: bool) -> Message:
    """Make a message of a row whose columns, from the second on, are those that `penstock.lease` returns."""
    # By number, in the order in which the functions return them: this is done for every message.
    attributes, trace_header = decode_attributes(row[9])
    return Message(
        position=row[1],
        receipt=row[2],
        receive_count=row[3],
        sent_at_ms=row[4],
        first_received_at_ms=row[5] or 0,
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
        # One by itself may be a retry: it has all that it was given before, even if it asks for fewer now.
        share = list(messages if len(leases) == 1 else messages[given : given + lease.count])
        given += len(share)
        if full and not share:
            yield lease, Leased([], FULL_AGAIN_MS) if lease.queue.fifo else over_limit(in_flight_max)
        else:
            yield lease, Leased(share, told["next_in"], 0 if lease.attempt is None else lease.retry)
