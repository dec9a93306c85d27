"""Offers: which jobs are shown to a worker next."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.job import JobState, Move
from penstock.store.job_port import Offers
from penstock.store.jobs.breakers import WHOLE_QUEUE, breaker_of, lock_breakers, read_breakers, save_breakers
from penstock.store.jobs.due import HELD_MS, give_effect
from penstock.store.jobs.gates import GATES_MAX, Gate, open_gates, save_gates, settle_gates
from penstock.store.jobs.reading import within_bytes
from penstock.store.jobs.rows import lane_of, offer_of
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.domain.job import Offer
    from penstock.domain.job_queue import BreakerPolicy, JobQueue
    from penstock.store.jobs.breakers import BreakerRecord
    from penstock.store.jobs.script import Row, Script, Tx
    from penstock.store.jobs.surroundings import Surroundings

TENANTS_MAX = 64
"""How many tenants one call looks at; the others have their turns in the calls after it."""

PROBES_MAX = 1_024
"""Of how many tenants and tasks together one call looks for a job; with many tasks it looks at fewer tenants."""

_DUE, _LATER, _SOONER, _NEXT, _GATE = range(5)


class Turn:
    """One call of offer: what it is asked for, and what it remembers should it be run again."""

    def __init__(
        self,
        queue: JobQueue,
        count: int,
        worker: str,
        after: str,
        tasks: tuple[str, ...] = (),
        number: int | None = None,
    ) -> None:
        self.queue = queue
        self.count = count
        self.worker = worker
        self.tasks = tasks
        """None named means all."""
        self.after = after
        """The tenant that had its turn last, by then and, when it is over, by now."""
        self.number = random.getrandbits(63) if number is None else number  # no secret
        """Stored with each job taken, to recognise our own after an unknown commit, or in a repeat of the call."""
        self.taken: list[tuple[int, int]] = []
        """Positions and fences of what earlier runs took: theirs if they were committed after all."""
        self.missed = False
        """Whether there may be more: who takes several tasks holds more jobs for a moment than it takes."""

    @property
    def tenants_max(self) -> int:
        """How many tenants it looks at."""
        return max(1, min(TENANTS_MAX, PROBES_MAX // len(self.tasks))) if self.tasks else TENANTS_MAX


def offer(tx: Tx, around: Surroundings, turn: Turn) -> Script[Offers]:
    """Offer up to so many jobs that are ready, the tenants in turn; and say, offers or not, when to ask again."""
    queue = turn.queue
    accept_by_ms = tx.now_ms + queue.settings.offer_ms
    offers: list[Offer] = []
    if turn.taken:
        rows = yield "taken_before", (listed(turn.taken), turn.number, tx.now_ms)
        offers = [offer_of(row, queue.name, queue.settings, tx.now_ms) for row in rows]
    looked = yield from _look(tx, around, turn)
    rows, next_at_ms = yield from _past_breakers(tx, turn, looked.tenants, turn.count - len(offers))
    gates_at_ms = yield from settle_gates(queue.id, looked.gates, {row[0] for row in rows}, accept_by_ms)
    if queue.settings.strict and rows:
        yield "commit_strictly", ()
    rows.sort(key=_urgency)
    turn.taken += [(row[0], row[6]) for row in rows]
    tx.count(queue.id, JobState.QUEUED, -len(rows))
    tx.count(queue.id, JobState.OFFERED, len(rows))
    if rows:
        tx.note(Move.OFFER, len(rows))
    offers += [offer_of(row[:-1], queue.name, queue.settings, tx.now_ms) for row in rows]
    # Of several callers together some may get none, even if others do: what comes next is for them.
    instants = gates_at_ms + [at_ms for at_ms in (next_at_ms, looked.next_at_ms) if at_ms is not None]
    if turn.missed:
        instants.append(tx.now_ms + HELD_MS)
    instants += [one.accept_by_ms for one in offers]
    if offers and len(looked.tenants) == turn.tenants_max:
        instants.append(tx.now_ms)
    return Offers(offers, max(min(instants) - tx.now_ms, 0) if instants else None)


def offer_again(tx: Tx, around: Surroundings, queues: Sequence[JobQueue], turn: int, count: int) -> Script[list[Offer]]:
    """Offer anew what was offered in a turn and not accepted, under higher fences: what is said under the old ones, by
    a request that is dead, changes nothing.
    """
    offers: list[Offer] = []
    bytes_left = around.limits.offered_bytes_max
    for queue in queues:
        if len(offers) == count or bytes_left <= 0:
            break
        before = yield "open_offers", (queue.id, turn, tx.now_ms, count - len(offers))
        if not before:
            continue
        if queue.settings.strict:
            yield "commit_strictly", ()
        positions, bytes_left = yield from within_bytes([position for position, _, _ in before], bytes_left)
        accept_by_ms = tx.now_ms + queue.settings.offer_ms
        rows = yield "offer_again", (listed(positions), accept_by_ms)
        # The tokens that they took are given back by when the offers end.
        charges = {(gate, until_ms) for _, gate, until_ms in before[: len(positions)] if gate is not None}
        for gate, until_ms in sorted(charges):
            yield "prolong_charge", (queue.id, gate, until_ms, accept_by_ms)
        rows.sort(key=_urgency)
        offers += [offer_of(row[:-1], queue.name, queue.settings, tx.now_ms) for row in rows]
    return offers


class Looked(msgspec.Struct, gc=False):
    """What is ready: the tenants, in turn, the gates that were opened for them, and when there will be more."""

    tenants: list[str]
    gates: list[Gate]
    next_at_ms: int | None


def _look(tx: Tx, around: Surroundings, turn: Turn) -> Script[Looked]:
    """Give effect to what has come due in the queue, and find the tenants whose turn it is."""
    queue = turn.queue
    look: tuple[str, Sequence[object]] = (
        "look",
        (queue.id, tx.now_ms, around.limits.due_rows_max, turn.after, turn.tenants_max, GATES_MAX),
    )
    if turn.tasks:
        look = "look_for_tasks", (*look[1], listed(turn.tasks))
    rows = yield look
    due = [(position, lane_id) for kind, position, lane_id, _ in rows if kind == _DUE]
    if due:
        yield from give_effect(tx, around, due)
        yield from save_gates(tx)
        rows = yield look
    names = [row[3] for row in rows if row[0] == _GATE]
    gates: list[Gate] = []
    if names:
        gates = yield from open_gates(tx, queue.id, queue.settings, names, turn.count, turn.tasks)
        rows = yield look
    next_at_ms = None
    if len(gates) < len(names) or len(names) == GATES_MAX:
        # Somebody else has some in hand, or there are more than one call looks at.
        next_at_ms = tx.now_ms + HELD_MS
    for kind, at_ms, _, _ in rows:
        if kind == _NEXT:
            next_at_ms = at_ms if next_at_ms is None else min(at_ms, next_at_ms)
        elif kind == _DUE:
            # There are more than one call takes care of, or somebody else has them in hand.
            next_at_ms = tx.now_ms + HELD_MS
    later = sorted(row[3] for row in rows if row[0] == _LATER)
    sooner = sorted(row[3] for row in rows if row[0] == _SOONER)
    return Looked((later + sooner)[: turn.tenants_max], gates, next_at_ms)


def _past_breakers(tx: Tx, turn: Turn, tenants: list[str], count: int) -> Script[tuple[list[Row], int | None]]:
    """Take jobs that no breaker holds up; and say when the first of the others may pass."""
    policy = turn.queue.settings.breaker
    if policy is None or not tenants:
        return (yield from _take_in_turn(tx, turn, tenants, count)), None
    breaker, allowance = yield from _allowance(tx, turn.queue, policy)
    if allowance is not None:
        assert breaker is not None
        count = min(count, allowance)
        if count == 0:
            return [], breaker.retry_at
    rows = yield from _take_in_turn(tx, turn, tenants, count)
    passed = yield from _park(tx, turn.queue, policy, rows)
    parked = len(passed) < len(rows)
    if breaker is not None and allowance is not None and passed:
        breaker.let_pass(policy, tx.now_ms, len(passed))
        yield from save_breakers(turn.queue.id, [breaker])
    if parked:
        # Behind those that are held up there may be others.
        return passed, tx.now_ms
    return passed, breaker.retry_at if breaker is not None and passed else None


def _allowance(tx: Tx, queue: JobQueue, policy: BreakerPolicy) -> Script[tuple[BreakerRecord | None, int | None]]:
    """How many jobs the queue's own breaker lets pass; None: it is closed."""
    known = (yield from read_breakers(queue.id, [WHOLE_QUEUE])).get(WHOLE_QUEUE)
    if known is None or known.retry_at is None:
        return None, None
    if known.allowance(policy, tx.now_ms) == 0:
        return known, 0
    locked = (yield from lock_breakers(queue.id, [WHOLE_QUEUE]))[WHOLE_QUEUE]
    return locked, locked.allowance(policy, tx.now_ms)


def _park(tx: Tx, queue: JobQueue, policy: BreakerPolicy, rows: list[Row]) -> Script[list[Row]]:
    """Put aside those whose concurrency key's breaker is open, and return the others."""
    names = {row[0]: name for row in rows if (name := breaker_of(lane_of(row), row[3])) is not None}
    known = (yield from read_breakers(queue.id, set(names.values()))) if names else {}
    open_names = [name for name, breaker in known.items() if breaker.retry_at is not None]
    if not open_names:
        return rows
    breakers = yield from lock_breakers(queue.id, open_names)
    passed: list[Row] = []
    for row in sorted(rows, key=_urgency):
        breaker = breakers.get(names.get(row[0], WHOLE_QUEUE))
        allowance = None if breaker is None else breaker.allowance(policy, tx.now_ms)
        if breaker is None or allowance is None:
            passed.append(row)
        elif allowance > 0:
            breaker.let_pass(policy, tx.now_ms, 1)
            passed.append(row)
        else:
            yield "park", (row[0], breaker.retry_at)
    yield from save_breakers(queue.id, breakers.values())
    return passed


def _take_in_turn(tx: Tx, turn: Turn, tenants: list[str], count: int) -> Script[list[Row]]:
    """Take jobs of each tenant in turn, as many of one as of another as far as they have them."""
    taken: list[Row] = []
    found = bool(tenants)
    due_at_ms = tx.now_ms + turn.queue.settings.offer_ms
    while tenants and len(taken) < count:
        share, extra = divmod(count - len(taken), len(tenants))
        served = tenants if share else tenants[:extra]
        able: list[str] = []
        ahead: list[str] = []
        for place, tenant in enumerate(served):
            wanted = share + (place < extra)
            arguments = (turn.queue.id, tenant, wanted, due_at_ms, turn.worker, turn.number, tx.now_ms)
            if turn.tasks:
                rows = yield "take_of_tasks", (*arguments, listed(turn.tasks))
            else:
                rows = yield "take", arguments
            taken += rows
            if len(rows) == wanted:
                (ahead if wanted > share else able).append(tenant)
        # Who comes after the last one with one more than the others is first in the next turn.
        turn.after = tenants[extra - 1]
        # If others had fewer than their share, the rest goes first to who has no more than that yet.
        tenants = able + ahead if share else tenants[extra:] + ahead
    turn.missed = found and len(taken) < count and (bool(turn.tasks) or not taken)
    return taken


def _urgency(row: Row) -> tuple[int, int]:
    return row[-1], row[0]
