"""Consumers that retry their receives: what each of their requests was given, and which of them they gave up."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.model import Delivery, ModelQueue
from tests.support.queues import attempt_key


@dataclass(eq=False)
class Receive:
    """One receive of a consumer, which it may send several times: it gives up a try before it sends the next."""

    key: bytes
    to: ModelQueue
    sent: int = 0
    """The number of the last retry that was sent."""


@dataclass(eq=False)
class Answered:
    """One request that reached the store, and what it was given."""

    receive: Receive | None
    retry: int
    holder: int
    deliveries: list[Delivery]


class Consumers:
    """All receives with attempt keys, and all requests, with a key or not, that were given messages."""

    def __init__(self) -> None:
        self.receives: list[Receive] = []
        self.answered: list[Answered] = []

    def begin(self, to: ModelQueue) -> Receive:
        """Make a receive that is to be sent for the first time."""
        self.receives.append(Receive(attempt_key(f"lease-{len(self.receives)}"), to))
        return self.receives[-1]

    def held(self, given_up: Answered) -> list[Delivery]:
        """Return what a consumer holds by another request of the same receive: nobody may take that from it.

        It goes by the last try. Where several requests have its number, any of them may be the last.
        """
        receive = given_up.receive
        if receive is None:
            return []
        last = [one for one in self.answered if one.receive is receive and one.retry == receive.sent]
        return [delivery for one in last if one is not given_up for delivery in one.deliveries if delivery.current]
