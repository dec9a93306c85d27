"""Huey on Redis. It takes a task off the list before it runs, in both classes: it has no acknowledgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from huey import RedisHuey

from benchmarks.library.programs.tasks import SYNC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library.programs.side import Call, Place

_SLOTS = 20


class _Producer:
    def __init__(self, place: Place) -> None:
        _, self._tasks = _huey(place)

    def enqueue(self, call: Call) -> None:
        self._tasks[call[0]](*call[1:])

    def enqueue_many(self, calls: Sequence[Call]) -> None:
        """Enqueue one by one: Huey has nothing for many."""
        for call in calls:
            self.enqueue(call)


def producer(place: Place) -> _Producer:
    return _Producer(place)


def work(place: Place, ready: Callable[[], None]) -> None:
    huey, _ = _huey(place)
    consumer = huey.create_consumer(workers=place.slots_or(_SLOTS), worker_type="thread", periodic=False)
    ready()
    consumer.run()


def _huey(place: Place) -> tuple[RedisHuey, dict[str, Callable[..., object]]]:
    huey = RedisHuey("bench", url=f"redis://{place.address}/0")
    return huey, {name: huey.task(name=name)(function) for name, function in SYNC.items()}
