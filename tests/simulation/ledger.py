"""What processes told about their work before they ended, and whether it can all be true together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

SLACK_MS = 2.0
"""Leases are counted in whole milliseconds, so one may seem to end this much early."""


@dataclass(frozen=True)
class Batch:
    """Messages that came in one receive, in order. The lease began between `called_ms` and `answered_ms`."""

    queue: str
    called_ms: float
    answered_ms: float
    lease_ms: int
    bodies: list[str]
    receipts: dict[str, int]
    message_ids: dict[str, str]


@dataclass
class Ledger:
    """The sum of all that was told, by any number of processes, one after the other or at once."""

    sending: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """By attempt key: the queue and the bodies."""
    queue_of: dict[str, str] = field(default_factory=dict)
    sent_at_ms: dict[str, float] = field(default_factory=dict)
    """By body, once acknowledged."""
    deleting_at_ms: dict[str, float] = field(default_factory=dict)
    deleted_at_ms: dict[str, float] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    receipt_max: dict[str, int] = field(default_factory=dict)
    sent_all: set[str] = field(default_factory=set)
    """The runs that have sent all they had to send."""
    unanswered: set[str] = field(default_factory=set)
    """Attempt keys of sends of which nobody knows yet whether they happened."""

    def note(self, line: str) -> None:
        verb, *words = line.split()
        if verb == "sending":
            self.sending[words[0]] = (words[1], words[2:])
            self.queue_of.update(dict.fromkeys(words[2:], words[1]))
            self.unanswered.add(words[0])
        elif verb == "sent":
            self.unanswered.discard(words[0])
            for body in self.sending[words[0]][1]:
                self.sent_at_ms.setdefault(body, float(words[1]))
        elif verb == "received":
            seen = [word.split(":") for word in words[4:]]
            self.batches.append(
                Batch(
                    queue=words[0],
                    called_ms=float(words[1]),
                    answered_ms=float(words[2]),
                    lease_ms=int(words[3]),
                    bodies=[body for body, _, _ in seen],
                    receipts={body: int(receipt) for body, receipt, _ in seen},
                    message_ids={body: message_id for body, _, message_id in seen},
                )
            )
            self.receipt_max |= self.batches[-1].receipts
        elif verb == "deleting":
            for body in words[2:]:
                self.deleting_at_ms.setdefault(body, float(words[1]))
        elif verb == "deleted":
            for body in words[2:]:
                self.deleted_at_ms.setdefault(body, float(words[1]))
        elif verb == "sent-all":
            self.sent_all.add(words[0])
        else:
            assert verb in ("ready", "done"), line

    @property
    def retries(self) -> list[tuple[str, str, list[str]]]:
        """The sends to be tried again: attempt key, queue, bodies."""
        return [(key, *self.sending[key]) for key in sorted(self.unanswered)]

    @property
    def to_do(self) -> set[str]:
        """What was acknowledged and came to no consumer that tried to delete it."""
        return self.sent_at_ms.keys() - self.deleting_at_ms.keys()

    # -- verdicts ---------------------------------------------------------------------------------

    def check_survivors(self, queue: str, found: list[str]) -> None:
        """Judge what a store holds after a kill."""
        attempted = {body for body, name in self.queue_of.items() if name == queue}
        assert len(set(found)) == len(found), "a message is there twice"
        assert set(found) <= attempted, "a message came from nowhere"
        lost = (attempted & self.sent_at_ms.keys()) - self.deleting_at_ms.keys() - set(found)
        assert not lost, "acknowledged sends are lost"
        assert not set(found) & self.deleted_at_ms.keys(), "acknowledged deletes are back"

    def check_deliveries(self) -> None:
        """Judge all receives: receipts, leases, deletes, and the order of groups."""
        by_body: dict[str, list[Batch]] = defaultdict(list)
        by_group: dict[str, list[Batch]] = defaultdict(list)
        for batch in self.batches:
            for body in batch.bodies:
                by_body[body].append(batch)
            if batch.queue.endswith(".fifo"):
                for group in {_group(body) for body in batch.bodies}:
                    by_group[group].append(batch)
        for body, batches in by_body.items():
            self._check_body(body, sorted(batches, key=lambda batch: batch.receipts[body]))
        acknowledged: dict[str, list[str]] = defaultdict(list)
        for body in self.sent_at_ms:
            if self.queue_of[body].endswith(".fifo"):
                acknowledged[_group(body)].append(body)
        for group, batches in by_group.items():
            self._check_group(group, batches, acknowledged[group])

    def _check_body(self, body: str, batches: list[Batch]) -> None:
        assert len({batch.message_ids[body] for batch in batches}) == 1, f"{body} was stored twice"
        for earlier, later in pairwise(batches):
            assert earlier.receipts[body] < later.receipts[body], f"{body} came twice with one receipt"
            assert later.answered_ms + SLACK_MS >= earlier.called_ms + earlier.lease_ms, f"{body} came inside its lease"
        if body in self.deleted_at_ms:
            assert batches[-1].called_ms <= self.deleted_at_ms[body], f"{body} came after its delete"

    def _check_group(self, group: str, batches: list[Batch], acknowledged: list[str]) -> None:
        members = sorted(batches, key=lambda batch: batch.answered_ms)
        for place, batch in enumerate(members):
            came = [body for body in batch.bodies if _group(body) == group]
            assert came == sorted(came, key=_number), f"{group} out of order in one receive"
            for body in acknowledged:
                if _number(body) < _number(came[0]) and self.sent_at_ms[body] < batch.called_ms:
                    gone = self.deleting_at_ms.get(body, float("inf")) <= batch.answered_ms
                    assert gone, f"{came[0]} came before {body}"
            for earlier in members[:place]:
                over = earlier.called_ms + earlier.lease_ms <= batch.answered_ms + SLACK_MS
                for body in earlier.bodies:
                    done = self.deleting_at_ms.get(body, float("inf")) <= batch.answered_ms
                    assert over or done or _group(body) != group, f"{group} was given to two consumers"


def _group(body: str) -> str:
    return body.rpartition(".")[0]


def _number(body: str) -> int:
    return int(body.rpartition(".")[2])
