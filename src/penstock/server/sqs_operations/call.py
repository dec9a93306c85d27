"""One call of an SQS operation: who makes it, on which queue, and what is known besides its parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.domain.errors import MissingParameter, QueueDoesNotExist
from penstock.domain.queue import QueueName
from penstock.wire.http import Request
from penstock.wire.sqs.attempts import request_attempt
from penstock.wire.sqs.errors import QUEUE_DOES_NOT_EXIST, AddressInvalid
from penstock.wire.sqs.names import parse_queue_url, queue_url

_HOST_IF_UNKNOWN = "localhost"


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Who calls: an identity of their own, their account and region, and how receivers are told of them."""

    identity: str
    account: str
    region: str
    sender: str


class Call(msgspec.Struct):
    """What an operation knows besides its parameters. It may leave `undelivered` for the answer to carry."""

    request: Request
    caller: Caller
    operation: str
    place: Place
    in_query: bool
    undelivered: Callable[[], Awaitable[None]] | None = None
    destinations: Collection[QueueName] | None = None
    """Where the caller may send messages that are moved back to where they came from; None is anywhere."""

    @property
    def attempt(self) -> bytes | None:
        """The key that a retry of this request shares with it, if its SDK marks retries."""
        region = self.caller.region
        return request_attempt(
            self.caller.identity,
            self.operation,
            self.request,
            region="" if region == self.place.region else region,
        )

    def queue(self, url: str | None) -> QueueName:
        """Tell which queue is meant: the one that the URL names, or the one at whose address the request arrived."""
        name = parse_queue_url(url or self.request.path, self.caller.region, self.caller.account)
        if name is None:
            if self.in_query and not url:
                address = self.place.base_url(self.request) + self.request.path
                raise AddressInvalid(f"The address {address} is not valid for this endpoint.")
            if url is None:
                raise MissingParameter("The request must contain the parameter QueueUrl.")
            raise QueueDoesNotExist(QUEUE_DOES_NOT_EXIST)
        return name

    def url_of(self, name: QueueName) -> str:
        """Write a queue's URL so that this client can reach it."""
        return queue_url(name, self.place.base_url(self.request), self.place.region)


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


class Ended(Protocol):
    """Is told what came of an operation that was begun: its result, or that it failed.

    With `again`, its handler may be asked too, which does no harm and finds the right words.
    """

    def __call__(
        self, result: msgspec.Struct | None, error: BaseException | None = None, /, *, again: bool = False
    ) -> None: ...


if TYPE_CHECKING:
    # The request is of the shape that the operation's entry in OPERATIONS names.
    Handler = Callable[[Call, Any], Awaitable[msgspec.Struct | None]]

    # The same without a coroutine. False, or a `PenstockError`, says that nothing was done: the handler is to be asked.
    Beginning = Callable[[Call, Any, "Ended"], bool]
