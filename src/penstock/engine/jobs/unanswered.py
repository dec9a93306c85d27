"""Offers to long polls that no report has answered: how a worker that hangs with several polls open is noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.clock import from_wall_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.domain.clock import Clock
    from penstock.domain.job import Lease, Offer

WORKERS_MAX = 2_000
"""How many workers are watched: those that were offered something last."""

OFFERS_MAX = 100
"""How many offers to one worker are watched: the last ones."""


class Unanswered:
    """The offers that polls of named workers got from this node, until a report on them or their end.

    A poll that was begun before an offer to the same worker lapsed may be one more connection of a worker that hangs.
    One that is begun later shows that the worker is alive. A report that reached another node is not seen here; this
    costs a live worker one empty answer, after which it polls again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: dict[str, dict[Lease, int]] = {}
        """By worker, the offers that are open and when each lapses. Who was offered something last comes last."""
        self._workers: dict[Lease, str] = {}
        self._lapsed_ms: dict[str, int] = {}
        """By worker, when an offer to it lapsed last."""

    def offered(self, worker: str, offers: Sequence[Offer]) -> None:
        """Watch offers that a poll got. Workers without a name are not watched."""
        if not worker or not offers:
            return
        open_offers = self._until_ms.pop(worker, {})
        self._until_ms[worker] = open_offers
        for offer in offers[-OFFERS_MAX:]:
            open_offers[offer.lease] = from_wall_ms(self._clock, offer.accept_by_ms)
            self._workers[offer.lease] = worker
        self._reap(worker)
        while len(open_offers) > OFFERS_MAX:
            self.forget([next(iter(open_offers))])
        while len(self._until_ms) > WORKERS_MAX:
            dropped = next(iter(self._until_ms))
            self.forget(list(self._until_ms[dropped]))
            self._until_ms.pop(dropped, None)
            self._lapsed_ms.pop(dropped, None)

    def forget(self, leases: Iterable[Lease]) -> None:
        """Take in that offers were answered, or given back."""
        for lease in leases:
            worker = self._workers.pop(lease, None)
            if worker is not None:
                del self._until_ms[worker][lease]

    def lapsed_before(self, worker: str, offers: Sequence[Offer]) -> bool:
        """Return whether an earlier offer of one of these jobs to this worker is open: then it has lapsed.

        By this node's clock it may not have, if the store's is ahead.
        """
        job_ids = {offer.lease.job_id for offer in offers}
        lapsed = [lease for lease in self._until_ms.get(worker, ()) if lease.job_id in job_ids]
        self._note_lapsed(worker, lapsed, self._clock.now_ms())
        return bool(lapsed)

    def lapsed_since(self, worker: str, began_ms: int) -> bool:
        """Return whether an offer to this worker has lapsed after `began_ms`."""
        if worker not in self._until_ms:
            return False
        self._reap(worker)
        return self._lapsed_ms.get(worker, began_ms) > began_ms

    def _reap(self, worker: str) -> None:
        now_ms = self._clock.now_ms()
        for lease, until_ms in list(self._until_ms[worker].items()):
            if until_ms <= now_ms:
                self._note_lapsed(worker, [lease], until_ms)

    def _note_lapsed(self, worker: str, leases: list[Lease], at_ms: int) -> None:
        if leases:
            self._lapsed_ms[worker] = max(at_ms, self._lapsed_ms.get(worker, at_ms))
            self.forget(leases)
