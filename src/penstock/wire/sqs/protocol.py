"""What a protocol of SQS does: bytes to the shape of a request, and the shape of an answer to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import msgspec

    from penstock.domain.errors import PenstockError
    from penstock.wire.http import Request, Response
    from penstock.wire.sqs.errors import SqsError
    from penstock.wire.sqs.operations import Operation

REQUEST_ID_HEADER = "x-amzn-RequestId"


class WireProtocol(Protocol):
    """One of the ways in which SQS is spoken. Nothing is kept from one request to the next."""

    def decode(self, request: Request) -> tuple[Operation, msgspec.Struct]:
        """Find what a request wants done, and with what; raise a `PenstockError` if that cannot be understood."""

    def answer(self, operation: Operation, result: msgspec.Struct | None, request_id: str) -> Response:
        """Write the answer of an operation that succeeded."""

    def refuse(self, error: SqsError, reason: str, request_id: str) -> Response:
        """Write the answer of one that did not."""

    def reason_of(self, error: PenstockError) -> str:
        """Say what went wrong in the words that this protocol has for it."""
