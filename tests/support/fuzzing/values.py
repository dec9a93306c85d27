"""Values that programs trip over, and changes that make a sound request unsound."""

from __future__ import annotations

import copy
import json
import random
from collections import deque
from typing import Any

Raw = str
"""JSON as it is sent, where Python's writer would not write it."""

POOLED_MAX = 100

TEXTS = [
    "",
    " ",
    "\0",
    "a\0b",
    "\x01\x1f\x7f\x85",
    "\ufffe\uffff",
    "\ud7ff\ue000\U0010ffff",
    "é€\u202e\u0301\U0001d538\U0001f469\u200d\U0001f467",
    "0",
    "-1",
    "1e400",
    "NaN",
    "null",
    "true",
    "[]",
    "{}",
    "*",
    ".*",
    "%00%ff%zz",
    "../../etc/passwd",
    "'; DROP TABLE message; --",
    '"<&>\r\n\t',
    "${aws:username}",
    "arn:aws:sqs:us-east-1:000000000000:",
    "arn:aws:sqs:::",
    "a" * 129,
    "a" * 2_000,
    "[" * 9_000,
    '{"a":' * 9_000,
    "1" * 5_000,
]
NUMBERS = [0, 1, -1, 2, 7, 11, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, -0.0]
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], {"": ""}, {"a": None}]
_ALL: list[list[Any]] = [list(TEXTS), list(NUMBERS), OTHERS]
RAW: list[Raw] = [
    "1e400",
    "-1e-400",
    "NaN",
    "Infinity",
    "1" * 400,
    '"\\ud800"',
    '"\\u0000"',
    "[" * 300 + "]" * 300,
    '{"a":1,"a":2}',
    "01",
    "'a'",
    "",
]


class Pool:
    """Texts that the server gave out, by the name of the field they stood in, so that later requests mean something."""

    def __init__(self) -> None:
        self._texts: dict[str, deque[str]] = {}

    def add(self, name: str, text: str) -> None:
        if 0 < len(text) <= 2_000:
            self._texts.setdefault(name.lower(), deque(maxlen=POOLED_MAX)).append(text)

    def add_all(self, value: Any) -> None:
        """Add every text in a JSON value."""
        found = [value]
        while found:
            match found.pop():
                case dict() as members:
                    for name, member in members.items():
                        if isinstance(member, str):
                            self.add(name, member)
                        else:
                            found.append(member)
                case list() as items:
                    found += items

    def draw(self, rng: random.Random, name: str) -> str | None:
        texts = self._texts.get(name.lower())
        return rng.choice(texts) if texts else None


def nasty(rng: random.Random) -> Any:
    """Draw a value that is likely not of the right kind."""
    # A copy, because it may be changed further.
    return copy.deepcopy(rng.choice(rng.choice(_ALL)))


def text(rng: random.Random) -> str:
    """Draw a text: usually a nasty one, sometimes of random characters."""
    if rng.random() < 0.7:
        return rng.choice(TEXTS)
    return "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0xD800)))) for _ in range(rng.randrange(20)))


def mutate(rng: random.Random, value: Any, times: int) -> Any:
    """Change a JSON value at some places: another value, another name, one member more or less, or one level more."""
    holder = {"": value}
    for _ in range(times):
        places = _places(holder)
        container, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1:
                container[key] = nasty(rng)
            case 2:
                container[key] = text(rng)
            case 3 if container is not holder:
                del container[key]
            case 4 if isinstance(container, dict) and container is not holder:
                container[text(rng)] = container.pop(key)
            case _:
                container[key] = rng.choice([[container[key]], {"a": container[key]}])
    return holder[""]


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left and len(found) < 200:
        container = left.pop()
        for key, member in list(container.items() if isinstance(container, dict) else enumerate(container)):
            found.append((container, key))
            if isinstance(member, dict | list):
                left.append(member)
    return found


def as_json(rng: random.Random, value: Any) -> bytes:
    """Write JSON, now and then with something in it that is none."""
    written = json.dumps(value)
    if rng.random() < 0.05:
        scalars = [part for part in ("null", "true", "0", '""') if part in written]
        if scalars:
            written = written.replace(rng.choice(scalars), rng.choice(RAW), 1)
    return spoil(rng, written.encode(), chance=0.05)


def spoil(rng: random.Random, data: bytes, *, chance: float) -> bytes:
    """Cut bytes short, or change, add or repeat some of them, by some chance."""
    if rng.random() >= chance or not data:
        return data
    spoilt = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(spoilt) + 1)
        match rng.randrange(5):
            case 0:
                del spoilt[at:]
            case 1:
                spoilt[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
            case 2:
                spoilt[at:at] = rng.choice([b"\0", b"\xff\xfe", b"\r\n", b"%", b'"', b"{", b"\xed\xa0\x80"])
            case 3:
                spoilt[at:at] = spoilt[at : at + rng.randrange(40)]
            case _:
                del spoilt[at : at + rng.randrange(10)]
    return bytes(spoilt)


def without_waits(value: Any) -> Any:
    """Let nobody wait for long: a campaign has no time for it."""
    if isinstance(value, list):
        return [without_waits(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: 0
        if "wait" in name.lower() and isinstance(member, int | float) and 0 < member < 10**6
        else without_waits(member)
        for name, member in value.items()
    }
