"""Messages as queries return them: one list of columns, and what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.message import Message
from penstock.store.codec import decode_attributes
from penstock.store.sqlite.positions import sequence_of

if TYPE_CHECKING:
    from penstock.domain.message import Attribute
    from penstock.store.sqlite.arrivals import MessageRow

_NO_EXTRAS: tuple[dict[str, Attribute], None] = ({}, None)

MESSAGE_COLUMNS = (
    "m.position, m.message_id, m.sent_at_ms, m.sender, m.extras, m.deduplication_id, m.dead_letter_source, m.body"
)

FRESH_COLUMNS = f"{MESSAGE_COLUMNS}, NULL, 0, 0, 0, NULL, NULL, NULL"
"""Those of `Row`, for a message without a delivery."""

ROW_COLUMNS = (
    f"{MESSAGE_COLUMNS}, d.state, d.visible_at_ms, d.receipt, d.receive_count, d.first_received_at_ms, d.group_id, "
    "d.received_elsewhere"
)
"""Those of `Row`, from message AS m and delivery AS d."""

ONE_ROW = f"""
SELECT {ROW_COLUMNS} FROM delivery AS d JOIN message AS m ON m.position = d.position WHERE d.position = ?
"""  # noqa: S608  # Our own text.

ROWS_PER_PAGE = 10
"""How many messages to read at once where nobody knows their size or waits for all of them."""


class Row(NamedTuple):
    """A message with its delivery, before the lease that is about to be made. A fresh message has no state.

    `receive_count` is of this queue, and what a redrive policy counts; consumers are shown those of other queues too.
    """

    position: int
    message_id: str
    sent_at_ms: int
    sender: str
    extras: bytes | None
    deduplication_id: str | None
    dead_letter_source: str | None
    body: str
    state: int | None
    visible_at_ms: int
    receipt: int
    receive_count: int
    first_received_at_ms: int | None
    group_id: int | None
    received_elsewhere: int | None

    @property
    def delivery(self) -> tuple[int, int | None, int | None]:
        """Position, state and group id, by which `Deliveries` removes a message."""
        return self.position, self.state, self.group_id

    def moved(self, position: int, *, message_id: str, sent_at_ms: int, dead_letter_source: str | None) -> MessageRow:
        """Give the row of this message at another place."""
        return (
            position,
            message_id,
            sent_at_ms,
            self.sender,
            self.extras,
            self.deduplication_id,
            dead_letter_source,
            self.body,
        )


def leased_message(row: Row, now_ms: int, group: str | None = None, *, fifo: bool = False, leases: int = 1) -> Message:
    """Make the message that a lease of `row`, now, delivers; with `leases` 0, the one that its last lease delivered."""
    # By place, not by name: rows come as plain tuples, and this is done for every message received.
    extras = row[4]
    attributes, trace_header = _NO_EXTRAS if extras is None else decode_attributes(extras)
    position = row[0]
    return Message(
        position=position,
        receipt=row[10] + leases,
        message_id=row[1],
        body=row[7],
        attributes=attributes,
        trace_header=trace_header,
        sender=row[3],
        group=group,
        deduplication_id=row[5],
        sequence=sequence_of(position) if fifo else None,
        sent_at_ms=row[2],
        first_received_at_ms=row[12] or now_ms,
        receive_count=row[11] + leases + (row[14] or 0),
        dead_letter_source=row[6],
    )
