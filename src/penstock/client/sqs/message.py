"""`Message`: what a handler is given, read from an answer of ReceiveMessage."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.client.errors import BodyInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping


class Message:
    """One message as it was received. It does not change; a redelivery is another `Message` with the same `id`."""

    __slots__ = ("attributes", "body", "id", "queue_url", "receipt", "system")

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the name that SQS and its users have for it
        body: str,
        receipt: str,
        queue_url: str,
        attributes: Mapping[str, str | bytes] | None = None,
        system: Mapping[str, str] | None = None,
    ) -> None:
        self.id = id
        self.body = body
        self.receipt = receipt
        """The receipt handle of this delivery."""
        self.queue_url = queue_url
        self.attributes = dict(attributes or {})
        """Message attributes by name: text and numbers as `str`, binary values as `bytes`."""
        self.system = dict(system or {})
        """Attributes that SQS itself sets, by their names there."""

    def json(self) -> Any:  # noqa: ANN401 - JSON holds anything
        """Return the body as JSON; raises `BodyInvalid`, by which the message counts as poison."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise BodyInvalid(f"The body of message {self.id} is not JSON: {error}") from error

    @property
    def receive_count(self) -> int:
        """How often the message was received, this time included."""
        return max(int(self.system.get("ApproximateReceiveCount", 1)), 1)

    @property
    def group(self) -> str | None:
        """The message group; on standard queues the tenant, if any."""
        return self.system.get("MessageGroupId")

    @property
    def sequence(self) -> str | None:
        """The sequence number, on FIFO queues."""
        return self.system.get("SequenceNumber")

    @property
    def sent_at(self) -> datetime | None:
        """When the message was sent, in UTC."""
        sent_ms = self.system.get("SentTimestamp")
        return None if sent_ms is None else datetime.fromtimestamp(int(sent_ms) / 1_000, UTC)

    def __repr__(self) -> str:
        # Neither the body nor the receipt handle belongs into a log.
        return f"Message(id={self.id!r}, receive_count={self.receive_count})"


def message_of(received: Mapping[str, Any], queue_url: str) -> Message:
    """Read a message out of an answer of ReceiveMessage."""
    given = received.get("MessageAttributes", {})
    values = {
        name: value["BinaryValue"] if "BinaryValue" in value else value.get("StringValue", "")
        for name, value in given.items()
    }
    return Message(
        id=received["MessageId"],
        body=received["Body"],
        receipt=received["ReceiptHandle"],
        queue_url=queue_url,
        attributes=values,
        system=received.get("Attributes", {}),
    )
