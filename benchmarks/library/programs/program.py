"""`program LIBRARY produce|work ADDRESS CLASS SLOTS LEDGER NAME`: one side of a library.

A worker runs until SIGTERM. A producer reads lines of JSON, each asking for one thing, and answers each with a line. It
ends with its input.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.library.programs.side import Place
from benchmarks.library.programs.tasks import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.library.programs.side import AsyncProducer, Call, Side, SyncProducer

CALLERS = 64
HUNDRED = 100
_FOREVER_S = 1e9


class Quota:
    """Hands out calls with ascending ids, until there were enough or the time is over."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._task, self._argument = str(asked["task"]), int(asked["argument"])
        self._ids = itertools.count(int(asked["first"]))
        self._end = int(asked["first"]) + int(asked["count_max"])
        self._lock = threading.Lock()
        self.count = 0
        self.started_s = time.perf_counter()
        self._ends_s = self.started_s + (asked["seconds"] or _FOREVER_S)

    def take(self, wanted: int) -> list[Call]:
        """Return the next calls, fewer than wanted at the end; none when it is over."""
        if time.perf_counter() >= self._ends_s:
            return []
        with self._lock:
            calls = [(self._task, number, self._argument) for number in itertools.islice(self._ids, wanted)]
            calls = [call for call in calls if call[1] < self._end]
            self.count += len(calls)
        return calls

    def singles(self) -> Iterator[Call]:
        """Yield the calls one by one."""
        while calls := self.take(1):
            yield calls[0]

    def answer(self) -> dict[str, float]:
        """Say what was done."""
        return {"seconds": time.perf_counter() - self.started_s, "count": self.count}


def produce(producer: SyncProducer) -> None:
    """Do what is asked, in threads."""
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "pace":
            _answer(_pace(producer, asked))
            continue
        quota = Quota(asked)
        if asked["way"] == "callers":
            callers = [threading.Thread(target=_enqueue_singles, args=(producer, quota)) for _ in range(CALLERS)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
        elif asked["way"] == "hundreds":
            while calls := quota.take(HUNDRED):
                producer.enqueue_many(calls)
        else:
            _enqueue_singles(producer, quota)
        _answer(quota.answer())


def _enqueue_singles(producer: SyncProducer, quota: Quota) -> None:
    for call in quota.singles():
        producer.enqueue(call)


def _pace(producer: SyncProducer, asked: dict[str, Any]) -> dict[str, float]:
    started_s = time.perf_counter()
    for index in range(asked["count"]):
        time.sleep(max(0.0, started_s + index / asked["per_s"] - time.perf_counter()))
        producer.enqueue(("stamp", asked["first"] + index, time.monotonic_ns()))
    return {"seconds": time.perf_counter() - started_s, "count": asked["count"]}


async def produce_async(producer: AsyncProducer) -> None:
    """Do what is asked, in tasks of this loop."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        if asked["do"] == "pace":
            _answer(await _pace_async(producer, asked))
            continue
        quota = Quota(asked)
        if asked["way"] == "callers":
            await asyncio.gather(*(_enqueue_singles_async(producer, quota) for _ in range(CALLERS)))
        elif asked["way"] == "hundreds":
            while calls := quota.take(HUNDRED):
                await producer.enqueue_many(calls)
        else:
            await _enqueue_singles_async(producer, quota)
        _answer(quota.answer())


async def _enqueue_singles_async(producer: AsyncProducer, quota: Quota) -> None:
    for call in quota.singles():
        await producer.enqueue(call)


async def _pace_async(producer: AsyncProducer, asked: dict[str, Any]) -> dict[str, float]:
    started_s = time.perf_counter()
    for index in range(asked["count"]):
        await asyncio.sleep(max(0.0, started_s + index / asked["per_s"] - time.perf_counter()))
        await producer.enqueue(("stamp", asked["first"] + index, time.monotonic_ns()))
    return {"seconds": time.perf_counter() - started_s, "count": asked["count"]}


def _answer(answered: dict[str, float]) -> None:
    print(json.dumps(answered), flush=True)  # noqa: T201 # Who asked reads it.


def _ready() -> None:
    print("ready at :0", flush=True)  # noqa: T201 # Who started it waits for this.


def main() -> None:
    """Run the side that the arguments name."""
    library, side, address, kind, slots, ledger = sys.argv[1:7]
    place = Place(address=address, durable=kind == "durable", slots=int(slots))
    module: Side = importlib.import_module(f"benchmarks.library.programs.{library}_side")
    open_ledger(ledger)
    uvloop.install()  # For all alike: Penstock depends on it, and others run faster with it too.
    if side == "work":
        module.work(place, _ready)
    elif hasattr(module, "open_producer"):
        asyncio.run(_open_and_produce(module, place))
    else:
        produce(module.producer(place))


async def _open_and_produce(module: Any, place: Place) -> None:  # noqa: ANN401 # It was found by name.
    await produce_async(await module.open_producer(place))


if __name__ == "__main__":
    main()
