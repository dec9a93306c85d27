"""The port of the stores that keep records, and what they answer."""

from __future__ import annotations

from typing import Protocol

import msgspec

TABLE = "penstock_idempotency"
"""The table that SQLite and PostgreSQL keep records in, unless you name another."""

STARTED = "STARTED"
COMPLETED = "COMPLETED"

ROUNDS_MAX = 20
"""How often a store looks again at a record that others change meanwhile."""


class Started(msgspec.Struct, frozen=True):
    """The caller holds the key now. `attempts` counts it: more than 1 if another began before, and did not complete."""

    attempts: int


class Held(msgspec.Struct, frozen=True):
    """Another owner holds the key for `left_ms` more, unless it renews its lease."""

    left_ms: int


class Completed(msgspec.Struct, frozen=True):
    """The work is done. `result` is JSON, or None if it could not be stored. The record is kept for `left_ms` more."""

    result: bytes | None
    attempts: int
    left_ms: int
    fingerprint: str = ""


class Mismatched(msgspec.Struct, frozen=True):
    """The key was used with another fingerprint."""


Taken = Started | Held | Completed | Mismatched


class Records(Protocol):
    """Keeps one record for each key, durably, for any number of holders in any number of processes.

    A record is STARTED, with an owner and a lease, or COMPLETED, with a result. Each call is atomic and durable when it
    returns, and can be repeated with the same arguments. Calls block, and come from any thread. They raise
    `RecordsInvalid` and `RecordsUnavailable`.
    """

    def create(self) -> None:
        """Create the table if it is missing, and check it."""

    def check(self) -> None:
        """Check that the store can be used, as the first call does. SQLite and PostgreSQL get the table, too."""

    def start(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int, fingerprint: str) -> Taken:
        """Take a key if it has no record, an expired one, or one that is STARTED and whose lease is over.

        An owner that holds the key gets the same answer again. A fingerprint is compared if both have one.
        """

    def renew(self, key: str, owner: str, *, lease_ms: int, ttl_ms: int) -> bool:
        """Extend the lease from now on; return whether the owner still held the key."""

    def complete(self, key: str, owner: str, result: bytes | None, *, ttl_ms: int) -> bool:
        """Record COMPLETED for `ttl_ms` from now on; return whether the owner still held the key."""

    def release(self, key: str, owner: str) -> bool:
        """End the lease now; the attempt stays counted. Return whether the owner still held the key."""

    def forget(self, key: str) -> None:
        """Remove a record, whatever its state."""

    def sweep(self, limit: int) -> int:
        """Remove at most `limit` expired records; return how many."""

    def close(self) -> None:
        """Close connections. The next call opens them again."""
