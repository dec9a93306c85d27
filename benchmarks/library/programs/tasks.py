"""The tasks that every library runs, and the ledger in which each of them leaves its id.

All take the same two numbers: the id, and a second one that only naps (milliseconds) and stamps (when it was sent) use.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time

RECORD = struct.Struct("<QQQ")
"""An id, the instant when the job was sent (0 unless it is a stamp) and the instant of the record, both in ns."""

_state = {"ledger": -1}


def open_ledger(path: str) -> None:
    """Use this file. Many processes may append to it: a record is one write, so none is torn and none is buffered."""
    _state["ledger"] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def record(number: int, sent_ns: int = 0) -> None:
    """Leave an effect that survives a kill of this process."""
    os.write(_state["ledger"], RECORD.pack(number, sent_ns, time.monotonic_ns()))


def noop(number: int, _: int) -> None:
    record(number)


def nap(number: int, milliseconds: int) -> None:
    time.sleep(milliseconds / 1000)
    record(number)


def stamp(number: int, sent_ns: int) -> None:
    record(number, sent_ns)


async def noop_async(number: int, _: int) -> None:
    record(number)


async def nap_async(number: int, milliseconds: int) -> None:
    await asyncio.sleep(milliseconds / 1000)
    record(number)


async def stamp_async(number: int, sent_ns: int) -> None:
    record(number, sent_ns)


SYNC = {"noop": noop, "nap": nap, "stamp": stamp}
"""For libraries that run functions in threads or processes."""
ASYNC = {"noop": noop_async, "nap_async": nap_async, "stamp": stamp_async}
"""For libraries that run coroutines."""
