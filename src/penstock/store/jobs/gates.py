"""Gates: where jobs with a start rate wait until there is a token for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.domain.limits import HOUR_MS
from penstock.store.jobs.rates import US_PER_MS, ahead_us, interval_us_of
from penstock.store.jobs.rows import decode_options
from penstock.store.jobs.script import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.domain.job import JobDraft
    from penstock.domain.job_queue import JobQueueSettings
    from penstock.store.jobs.script import Row, Script, Tx

GATES_MAX = 64
"""How many gates one call looks at; the others have their turns in the calls after it."""

KEPT_MS = HOUR_MS
"""For how long the rate of a key is remembered after its last start."""

READY = 1
GATED = 2
"""What the column `ready` has for a job that may be offered, and for one that waits at its gate."""


def gate_of(draft: JobDraft, settings: JobQueueSettings) -> str | None:
    """The name, within its queue, of the gate that a job waits at: its tenant's, or one that all tenants share."""
    if draft.start_rate is None:
        return None
    key = draft.start_rate.key
    setting = settings.start_rates.get(key)
    return listed((1, "", key) if setting is not None and setting.shared else (0, draft.tenant, key))


class Gate:
    """A gate within one transaction, whose row is locked: a token bucket, and who is let through by it."""

    def __init__(self, row: Row, settings: JobQueueSettings, now_ms: int) -> None:
        self.name: str
        self.name, self.own_interval_us, self.own_burst, self._full_at_us = row
        self._now_ms = now_ms
        self._setting = settings.start_rates.get(msgspec.json.decode(self.name)[2])
        self.passed: set[int] = set()
        """The positions of jobs that may be offered in this transaction."""
        self.full = False
        """Whether as many passed as might, so that others may be waiting."""

    @property
    def has_rate(self) -> bool:
        """Whether it is known how fast jobs may start."""
        return self._setting is not None or self.own_interval_us is not None

    @property
    def _burst(self) -> int:
        burst: int = self.own_burst if self._setting is None else self._setting.burst
        return burst

    @property
    def _interval_us(self) -> int:
        interval_us: int = self.own_interval_us if self._setting is None else interval_us_of(self._setting.per_second)
        return interval_us

    @property
    def tokens(self) -> int:
        """How many jobs may start now."""
        return max(self._burst - -(-self._ahead_us() // self._interval_us), 0)

    @property
    def next_at_ms(self) -> int:
        """When there is a token: now, or later."""
        wait_us = self._ahead_us() - (self._burst - 1) * self._interval_us
        return self._now_ms + max(-(-wait_us // US_PER_MS), 0)

    def settle(self, queue_id: int, taken: set[int], until_ms: int) -> Script[None]:
        """Take a token for each of its jobs that is offered until this instant; the others wait again."""
        charged = len(self.passed & taken)
        if charged:
            self._full_at_us = self._now_ms * US_PER_MS + self._ahead_us() + charged * self._interval_us
        if self.passed - taken:
            yield "hold_at_gate", (listed(self.passed - taken),)
        yield (
            "save_gate",
            (
                queue_id,
                self.name,
                self.own_interval_us,
                self.own_burst,
                self._full_at_us,
                until_ms if charged else None,
                self._interval_us if charged else None,
                self.next_at_ms if self.has_rate else None,
            ),
        )

    def _ahead_us(self) -> int:
        return ahead_us(self._full_at_us, self._now_ms * US_PER_MS, self._interval_us, self._burst)


def open_gates(
    tx: Tx, queue_id: int, settings: JobQueueSettings, names: Iterable[str], count: int, tasks: Sequence[str]
) -> Script[list[Gate]]:
    """Lock gates that nobody else holds, and let through up to `count` jobs of each, as far as there are tokens."""
    rows = yield "lock_gates", (queue_id, listed(names))
    gates = [Gate(row, settings, tx.now_ms) for row in rows]
    for gate in gates:
        if not gate.has_rate:
            # The key is new: the rate is that of the first who waits.
            for (options,) in (yield "waits_at_gate", (queue_id, gate.name)):
                rate = decode_options(options).start_rate
                assert rate is not None
                gate.own_interval_us, gate.own_burst = interval_us_of(rate.per_second), rate.burst
        room = min(gate.tokens, count) if gate.has_rate else 0
        if room:
            passed = yield "pass_gate", (queue_id, gate.name, room, listed(tasks), tx.now_ms)
            gate.passed = {position for (position,) in passed}
        gate.full = gate.has_rate and len(gate.passed) == room
    return gates


def settle_gates(queue_id: int, gates: Iterable[Gate], taken: set[int], until_ms: int) -> Script[list[int]]:
    """Take tokens for the jobs that are offered, and return when others who may be waiting can have one."""
    instants: list[int] = []
    for gate in gates:
        yield from gate.settle(queue_id, taken, until_ms)
        if gate.full and gate.tokens == 0:
            instants.append(gate.next_at_ms)
    return instants


def save_gates(tx: Tx) -> Script[None]:
    """Write that jobs wait at gates, and give back the tokens of offers that came to nothing."""
    refunds: list[Sequence[object]] = [
        (*gate, until_ms, number) for (*gate, until_ms), number in sorted(tx.refunds.items())
    ]
    armed: list[Sequence[object]] = [*sorted(tx.gates)]
    tx.refunds.clear()
    tx.gates.clear()
    if armed:
        yield "arm_gate", armed
    if refunds:
        yield "refund_gate", refunds
