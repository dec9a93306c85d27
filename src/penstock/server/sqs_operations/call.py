"""One call of an SQS operation: who makes it, on which queue, and what is known besides its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.errors import QueueDoesNotExist
from penstock.wire.sqs.attempts import request_attempt
from penstock.wire.sqs.errors import QUEUE_DOES_NOT_EXIST, AddressInvalid
from penstock.wire.sqs.names import parse_queue_url, queue_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.domain.queue import QueueName
    from penstock.wire.http import Request

_HOST_IF_UNKNOWN = "localhost"


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Who calls: an identity of their own, their account and region, and how receivers are told of them."""

    identity: str
    account: str
    region: str
    sender: str


class Call:
    """What an operation knows besides its parameters. It may leave `undelivered` for the answer to carry."""

    __slots__ = ("_in_query", "_operation", "_place", "caller", "request", "undelivered")

    def __init__(self, request: Request, caller: Caller, operation: str, place: Place, *, in_query: bool) -> None:
        self.request = request
        self.caller = caller
        self.undelivered: Callable[[], Awaitable[None]] | None = None
        self._operation = operation
        self._place = place
        self._in_query = in_query

    @property
    def attempt(self) -> bytes | None:
        """The key that a retry of this request shares with it, if its SDK marks retries."""
        return request_attempt(self.caller.identity, self._operation, self.request)

    def queue(self, url: str | None) -> QueueName:
        """Tell which queue is meant: the one that the URL names, or the one at whose address the request arrived."""
        name = parse_queue_url(url or self.request.path, self.caller.region, self.caller.account)
        if name is None:
            if self._in_query and not url:
                address = self._place.base_url(self.request) + self.request.path
                raise AddressInvalid(f"The address {address} is not valid for this endpoint.")
            raise QueueDoesNotExist(QUEUE_DOES_NOT_EXIST)
        return name

    def url_of(self, name: QueueName) -> str:
        """Write a queue's URL so that this client can reach it."""
        return queue_url(name, self._place.base_url(self.request), self._place.region)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where this server is: the region of requests that name none, and the URL under which clients reach it."""

    region: str
    scheme: str
    public_url: str | None

    def base_url(self, request: Request) -> str:
        """Tell the URL of this server as the client knows it, without a slash at its end."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        return f"{self.scheme}://{request.headers.get('host') or _HOST_IF_UNKNOWN}"


if TYPE_CHECKING:
    # The request is of the shape that the operation's entry in OPERATIONS names.
    Handler = Callable[[Call, Any], Awaitable[msgspec.Struct | None]]
