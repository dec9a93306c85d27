"""The statements by which relays share an outbox: each claims rows for a while, and settles what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.transactions.connections import Statement
from penstock.client.transactions.outbox import REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from penstock.client.transactions.connections import Dialect

LEASE_MS = 30_000
"""How long rows belong to the relay that has claimed them; the rest of their queues waits meanwhile."""
CHARACTERS_MAX = 1_500_000
"""How much one claim takes, but for its first row: at most 6 MiB of UTF-8, which one request may have."""
_LOCK = 0x70656E73746F636B
"""Of claims in PostgreSQL: two at once could share a queue, and its order would be lost."""
_CHUNK = 500
REASON_LENGTH_MAX = 2_000

_LOOK = "SELECT seq FROM penstock_outbox WHERE refused_at_ms IS NULL AND due_at_ms <= ? ORDER BY seq LIMIT 1"
_CANDIDATES = (
    "SELECT seq, id, queue, LENGTH(request), sends, first_sent_at_ms FROM penstock_outbox "
    "WHERE refused_at_ms IS NULL AND due_at_ms <= ? "
    "AND queue NOT IN (SELECT queue FROM penstock_outbox WHERE refused_at_ms IS NULL AND due_at_ms > ?) "
    "ORDER BY seq LIMIT {limit}"
)
_WAITING = "SELECT COUNT(*) FROM penstock_outbox WHERE refused_at_ms IS NULL"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row that a relay has claimed."""

    seq: int
    id: str
    queue: str
    request: str | bytes | None
    """None if it is too large to be read."""
    sends: int
    """How often it was sent before."""
    first_sent_at_ms: int | None
    """When it was first sent without an answer that said what became of it."""


class Outcome(msgspec.Struct, kw_only=True):
    """What became of the rows of one claim."""

    done: list[Row] = msgspec.field(default_factory=list)
    refused: list[tuple[Row, str]] = msgspec.field(default_factory=list)
    """Each with the reason."""
    delayed: list[tuple[Row, str, int, bool]] = msgspec.field(default_factory=list)
    """Each with the reason, for how long, and whether it is certain that the server has not taken it."""


def look(now_ms: int) -> Generator[Statement, Any, bool]:
    """Return whether any row is due; takes no lock."""
    return bool((yield Statement(_LOOK, (now_ms,), rows=True)))


def waiting() -> Generator[Statement, Any, int]:
    """Return how many rows are not settled yet."""
    return int((yield Statement(_WAITING, rows=True))[0][0])


def claim(dialect: Dialect, relay: str, now_ms: int, limit: int) -> Generator[Statement, Any, list[Row]]:
    """Claim the first rows that are due, in order. A queue of which another relay has rows, or one waits, is left out.

    A row counts as sent from here on: who dies after this commit may have sent it.
    """
    candidates = _CANDIDATES.format(limit=limit)
    if dialect == "postgresql":
        yield Statement("SELECT pg_advisory_xact_lock(?)", (_LOCK,), rows=True)
    if dialect in {"postgresql", "mysql"}:
        candidates += " FOR UPDATE SKIP LOCKED"
    found = _bounded((yield Statement(candidates, (now_ms, now_ms), rows=True)))
    if not found:
        return []
    requests: dict[int, str | bytes] = {}
    for seqs in _chunks([row[0] for row in found]):
        places = ", ".join("?" * len(seqs))
        yield Statement(
            f"UPDATE penstock_outbox SET relay = ?, due_at_ms = ?, sends = sends + 1, first_sent_at_ms = "  # noqa: S608 - only our own text and question marks
            f"COALESCE(first_sent_at_ms, ?) WHERE seq IN ({places})",
            (relay, now_ms + LEASE_MS, now_ms, *seqs),
        )
        rows = yield Statement(
            f"SELECT seq, request FROM penstock_outbox WHERE seq IN ({places}) AND LENGTH(request) <= ?",  # noqa: S608
            (*seqs, REQUEST_BYTES_MAX),
            rows=True,
        )
        requests.update(rows)
    return [
        Row(seq=seq, id=job_id, queue=queue, request=requests.get(seq), sends=sends, first_sent_at_ms=first_ms)
        for seq, job_id, queue, _, sends, first_ms in found
    ]


def settle(relay: str, outcome: Outcome, now_ms: int) -> Generator[Statement, Any, None]:
    """Delete what was acknowledged, set aside what was refused, and put off the rest."""
    for seqs in _chunks([row.seq for row in outcome.done]):
        # Also if the claim is over: whoever has it now only learns that the job is there.
        places = ", ".join("?" * len(seqs))
        yield Statement(f"DELETE FROM penstock_outbox WHERE seq IN ({places})", seqs)  # noqa: S608
    for row, reason in outcome.refused:
        yield Statement(
            "UPDATE penstock_outbox SET refused_at_ms = ?, reason = ?, relay = NULL WHERE seq = ? AND relay = ?",
            (now_ms, reason[:REASON_LENGTH_MAX], row.seq, relay),
        )
    for row, reason, delay_ms, certain in outcome.delayed:
        forget = ", first_sent_at_ms = NULL" if certain else ""
        yield Statement(
            f"UPDATE penstock_outbox SET due_at_ms = ?, reason = ?, relay = NULL{forget} WHERE seq = ? AND relay = ?",  # noqa: S608
            (now_ms + delay_ms, reason[:REASON_LENGTH_MAX], row.seq, relay),
        )


def _bounded(candidates: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    characters = 0
    for row in candidates:
        length = 0 if row[3] is None or row[3] > REQUEST_BYTES_MAX else row[3]
        if found and characters + length > CHARACTERS_MAX:
            break
        found.append(row)
        characters += length
    return found


def _chunks(values: Iterable[int]) -> Iterator[list[int]]:
    listed = list(values)
    for start in range(0, len(listed), _CHUNK):
        yield listed[start : start + _CHUNK]
