"""Whether the credentials lack ChangeMessageVisibility, which is said once."""

from __future__ import annotations

import logging
import threading

from penstock.client.sqs.events import log


class Denial:
    """Remembers that ChangeMessageVisibility is denied: then work goes on without it, as SQS alone would do it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = False

    @property
    def known(self) -> bool:
        """Whether it is denied, as far as was tried."""
        return self._known

    def note(self, error: Exception, queue_url: str) -> None:
        """Note that it is denied; the first time, warn."""
        with self._lock:
            if self._known:
                return
            self._known = True
        log(
            logging.WARNING,
            "not allowed to change visibility",
            queue=queue_url,
            consequence="long work is not held by heartbeats, and what fails comes back when its visibility ends",
            remedy="allow sqs:ChangeMessageVisibility",
            error=error,
        )
