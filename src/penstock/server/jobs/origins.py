"""Where the jobs that workers have came from, for logs and traces of what the workers say about them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.domain.job import Offer

ORIGINS_MAX = 20_000


class Origin(NamedTuple):
    """What a job carries of the request that enqueued it."""

    queue: str
    correlation_id: str
    trace: str | None


class Origins:
    """Remembers the origins of jobs that were offered here, the latest `ORIGINS_MAX`. It is a hint only."""

    def __init__(self) -> None:
        self._origins: OrderedDict[str, Origin] = OrderedDict()

    def remember(self, offer: Offer) -> None:
        """Take in a job that is offered."""
        self._origins[offer.lease.job_id] = Origin(offer.queue, offer.correlation_id, offer.trace)
        if len(self._origins) > ORIGINS_MAX:
            self._origins.popitem(last=False)

    def find(self, job_id: str) -> Origin | None:
        """Return a job's origin if it is known here."""
        return self._origins.get(job_id)

    def forget(self, job_id: str) -> None:
        """Take in that a job is finished."""
        self._origins.pop(job_id, None)
