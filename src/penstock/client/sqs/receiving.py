"""Receiving: one ReceiveMessage at a time, of which no message is forgotten when nobody waits for it any more."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from penstock.client.sqs.events import log
from penstock.domain.ids import OrderedIds

if TYPE_CHECKING:
    from penstock.client.sqs.delivery import Delivery
    from penstock.client.sqs.session import Session


class Receiver:
    """Receives messages. A thread that waits in a long poll cannot be cancelled, so it releases what comes too late."""

    def __init__(self, session: Session, *, fifo: bool) -> None:
        self._session = session
        self._fifo = fifo
        self._ids = OrderedIds()
        self._attempt_id = ""
        self._lock = threading.Lock()
        self._abandoned = False
        self._arrived: dict[str, Any] | None = None
        """What a thread has received and the event loop has not taken yet."""

    async def receive(self, count: int, wait_s: int) -> list[Delivery]:
        """Receive up to `count` messages."""
        parameters = self._session.parameters(count, wait_s)
        if self._fifo:
            # The same until it is answered: so a receive whose answer was lost gives its messages again.
            self._attempt_id = self._attempt_id or self._ids.new_id()
            parameters["ReceiveRequestAttemptId"] = self._attempt_id
        if self._session.api.is_async:
            answer = await self._session.api.start("receive_message", **parameters)
        else:
            answer = await self._session.threads.run(self._receive_in_thread, parameters)
            with self._lock:
                self._arrived = None
        self._attempt_id = ""
        deliveries = self._session.deliveries(answer)
        counters = self._session.events.counters
        counters.polls += 1
        counters.empty_polls += not deliveries
        return deliveries

    def abandon(self) -> None:
        """Do not wait for a call on its way any more. What it brings is released where its thread lives on."""
        with self._lock:
            self._abandoned = True

    def unclaimed(self) -> list[Delivery]:
        """Return what was received just before `abandon`, and nobody has taken."""
        with self._lock:
            answer, self._arrived = self._arrived, None
        return [] if answer is None else self._session.deliveries(answer)

    def _receive_in_thread(self, parameters: dict[str, Any]) -> dict[str, Any]:
        client = self._session.api.client
        answer: dict[str, Any] = client.receive_message(**parameters)
        with self._lock:
            if not self._abandoned:
                self._arrived = answer
                return answer
        if messages := answer.get("Messages", []):
            # Nobody waits for them: hidden, they would be missed until their visibility ends.
            entries = [
                {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
                for place, message in reversed(list(enumerate(messages)))
            ]
            where = {"queue": parameters["QueueUrl"], "messages": len(messages)}
            try:
                client.change_message_visibility_batch(QueueUrl=parameters["QueueUrl"], Entries=entries)
            except Exception as error:  # noqa: BLE001 - nobody is left to handle it
                log(logging.WARNING, "not released what came after the end", **where, error=error)
            else:
                log(logging.INFO, "released what came after the end", **where)
        return answer
