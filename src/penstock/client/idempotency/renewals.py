"""Leases are renewed from a thread of their own, so that a function which blocks the event loop keeps its key."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from penstock.client.errors import IdempotencyError

if TYPE_CHECKING:
    from penstock.client.idempotency.records import Records
    from penstock.domain.clock import Clock

_log = logging.getLogger("penstock.idempotency")

SHARE = 3
"""A lease is renewed each time that a third of it is over, and after a failure when a tenth more is."""
SHARE_AFTER_FAILURE = 10
LOOK_S_MAX = 60.0


class Renewed:
    """A lease while its holder works."""

    def __init__(self, key: str, owner: str, lease_ms: int, ttl_ms: int, held_from_ms: int) -> None:
        self.key = key
        self.owner = owner
        self.lease_ms = lease_ms
        self.ttl_ms = ttl_ms
        self.due_ms = held_from_ms + lease_ms // SHARE
        self.ends_ms = held_from_ms + lease_ms
        self.ending = False
        """Whether its record is being completed: then a renewal may find nothing to renew."""
        self.lost = False
        """Whether another holder has the key, or may have it: the lease is over."""


class Renewals:
    """Renews leases from when they are added until they are removed. Its thread lives as long as there are any."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._changed = threading.Condition()
        self._leases: dict[str, Renewed] = {}
        self._running = False

    def add(self, lease: Renewed) -> None:
        """Renew a lease from now on."""
        with self._changed:
            self._leases[lease.owner] = lease
            if self._running:
                self._changed.notify()
            elif self._clock.pinned_ms is None:  # Where time is moved by hand, so is what comes due.
                self._running = True
                threading.Thread(target=self._run, name="penstock-idempotency-renewals", daemon=True).start()

    def remove(self, lease: Renewed) -> None:
        """Renew a lease no longer. A renewal that is under way changes nothing once the record is completed."""
        with self._changed:
            self._leases.pop(lease.owner, None)
            self._changed.notify()

    def renew_due(self) -> int:
        """Renew what is due now; return in how many milliseconds the next is, or 0 if there is none."""
        now_ms = self._clock.now_ms()
        with self._changed:
            due = [lease for lease in self._leases.values() if lease.due_ms <= now_ms]
        for lease in due:
            self._renew(lease)
        with self._changed:
            return self._next_ms()

    def after_fork(self) -> None:
        """Have no leases: they are the parent's."""
        self._changed = threading.Condition()
        self._leases = {}
        self._running = False

    def _renew(self, lease: Renewed) -> None:
        asked_ms = self._clock.now_ms()
        try:
            held = self._records.renew(lease.key, lease.owner, lease_ms=lease.lease_ms, ttl_ms=lease.ttl_ms)
        except Exception as error:  # noqa: BLE001 - if this thread ended, no lease would be renewed any more
            known = isinstance(error, IdempotencyError)
            _log.warning("The lease on %s could not be renewed: %s", lease.key, error, exc_info=not known)
            lease.due_ms = self._clock.now_ms() + lease.lease_ms // SHARE_AFTER_FAILURE
            lease.lost = lease.lost or self._clock.now_ms() >= lease.ends_ms
            return
        if held:
            # From before the question: the store's lease ends no sooner.
            lease.due_ms = asked_ms + lease.lease_ms // SHARE
            lease.ends_ms = asked_ms + lease.lease_ms
            lease.lost = False
            return
        with self._changed:
            still_here = self._leases.pop(lease.owner, None) is not None
        if still_here and not lease.ending:  # Otherwise it was completed or released meanwhile.
            lease.lost = True
            _log.warning("The lease on %s is lost: another holder took the key over.", lease.key)

    def _next_ms(self) -> int:
        now_ms = self._clock.now_ms()
        return min((max(lease.due_ms - now_ms, 1) for lease in self._leases.values()), default=0)

    def _run(self) -> None:
        while True:
            self.renew_due()
            with self._changed:
                if not self._leases:
                    self._running = False
                    return
                # Asked again under the lock: a lease that was just added may be due before all others.
                self._changed.wait(min(self._next_ms() / 1_000, LOOK_S_MAX))
