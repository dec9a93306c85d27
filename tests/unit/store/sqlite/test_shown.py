"""Instants as they leave the store: every one of an answer is translated."""

from __future__ import annotations

import msgspec
import pytest

from penstock.domain import gather, job, job_queue, message, move, operation, queue, schedule, worker
from penstock.store import job_port, port
from penstock.store.sqlite.shown import HOLDERS, INSTANTS, shown

NOT_TRANSLATED = {
    "JobDraft.run_at_ms",  # It goes in.
    "LeaseStatus.until_ms",  # Compared with what it was before, and not shown.
    # By the wall clock anyway.
    "Queue.created_at_ms",
    "Queue.modified_at_ms",
    "Schedule.next_at_ms",
    "Schedule.last_at_ms",
}

KINDS = [
    kind
    for module in (gather, job, job_queue, message, move, operation, queue, schedule, worker, port, job_port)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
]


def test_every_instant_is_translated_unless_it_is_known_why_not() -> None:
    instants = {
        f"{kind.__name__}.{field}"
        for kind in KINDS
        for field in kind.__struct_fields__
        if field.endswith(("at_ms", "by_ms", "until_ms"))
    }
    assert instants == {f"{kind.__name__}.{name}" for kind, names in INSTANTS.items() for name in names} | (
        NOT_TRANSLATED
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_whatever_holds_others_with_instants_is_known(kind: type[msgspec.Struct]) -> None:
    with_instants = {each.__name__ for each in INSTANTS}
    held = {field.name for field in msgspec.structs.fields(kind) if with_instants & set(_names(field.type))}
    assert held == set(HOLDERS.get(kind, ()))


def _names(hint: object) -> set[str]:
    """List the names of the types that a type is made of."""
    names = {getattr(hint, "__name__", "")}
    for part in getattr(hint, "__args__", ()):
        names |= _names(part)
    return names


def test_what_has_not_come_stays_so() -> None:
    seen = message.Message(
        position=1, receipt=0, message_id="m", body="b", sent_at_ms=5_000, first_received_at_ms=0, receive_count=0
    )
    peek = port.Peek([message.Peeked(message=seen, state=message.MessageState.VISIBLE, visible_at_ms=6_000)], 7)
    [peeked] = shown(peek, 1_000).messages
    assert (peeked.message.sent_at_ms, peeked.message.first_received_at_ms, peeked.visible_at_ms) == (4_000, 0, 5_000)
    assert shown(job_port.Reported(job.JobState.DEAD), 1_000).until_ms is None
