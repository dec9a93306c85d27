"""Queues: create, find, list, describe, change, tag, purge and delete them."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from penstock.domain.errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidParameter,
    MissingParameter,
)
from penstock.domain.queue import NAME_RULE, QueueName
from penstock.engine.queues import check_tag_keys
from penstock.wire.sqs import shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.queues import Page, Queues
    from penstock.server.sqs_operations.call import Call, Handler

_FIFO = "FifoQueue"


class QueueOperations:
    """The operations on queues as a whole."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def handlers(self) -> dict[str, Handler]:
        """Return the operations by their names."""
        return {
            "CreateQueue": self._create,
            "GetQueueUrl": self._get_url,
            "DeleteQueue": self._delete,
            "PurgeQueue": self._purge,
            "ListQueues": self._list,
            "ListDeadLetterSourceQueues": self._list_sources,
            "GetQueueAttributes": self._get_attributes,
            "SetQueueAttributes": self._set_attributes,
            "TagQueue": self._tag,
            "UntagQueue": self._untag,
            "ListQueueTags": self._list_tags,
        }

    async def _create(self, call: Call, request: shapes.CreateQueueRequest) -> shapes.CreateQueueResult:
        name = _own(call, request.queue_name)
        attributes = request.attributes or {}
        _check_new(name, attributes)
        queue = await self._queues.create(name, attributes, request.tags)
        return shapes.CreateQueueResult(queue_url=call.url_of(queue.name))

    async def _get_url(self, call: Call, request: shapes.GetQueueUrlRequest) -> shapes.GetQueueUrlResult:
        name = _own(call, request.queue_name)
        if request.queue_owner_account is not None:
            name = QueueName(name.region, request.queue_owner_account, name.name)
        queue = await self._queues.find(name)
        return shapes.GetQueueUrlResult(queue_url=call.url_of(queue.name))

    async def _delete(self, call: Call, request: shapes.DeleteQueueRequest) -> None:
        await self._queues.delete(call.queue(request.queue_url))

    async def _purge(self, call: Call, request: shapes.PurgeQueueRequest) -> None:
        await self._queues.purge(call.queue(request.queue_url))

    async def _list(self, call: Call, request: shapes.ListQueuesRequest) -> shapes.ListQueuesResult:
        page = await self._queues.list_queues(
            call.caller.region,
            call.caller.account,
            prefix=request.queue_name_prefix or "",
            after=_after(request.next_token),
            limit=request.max_results,
        )
        return shapes.ListQueuesResult(
            queue_urls=[call.url_of(queue.name) for queue in page.queues] or None,
            next_token=_next_token(page, request.max_results),
        )

    async def _list_sources(
        self, call: Call, request: shapes.ListDeadLetterSourceQueuesRequest
    ) -> shapes.ListDeadLetterSourceQueuesResult:
        page = await self._queues.dead_letter_sources(
            call.queue(request.queue_url), after=_after(request.next_token), limit=request.max_results
        )
        return shapes.ListDeadLetterSourceQueuesResult(
            queue_urls=[call.url_of(queue.name) for queue in page.queues] or None,
            next_token=_next_token(page, request.max_results),
        )

    async def _get_attributes(
        self, call: Call, request: shapes.GetQueueAttributesRequest
    ) -> shapes.GetQueueAttributesResult:
        described = await self._queues.describe(call.queue(request.queue_url), request.attribute_names or ())
        return shapes.GetQueueAttributesResult(attributes=described or None)

    async def _set_attributes(self, call: Call, request: shapes.SetQueueAttributesRequest) -> None:
        name = call.queue(request.queue_url)
        attributes = request.attributes or {}
        flag = attributes.get(_FIFO)
        if flag is not None and not name.fifo:
            raise InvalidAttributeName(f"Unknown Attribute {_FIFO}.")
        if flag is not None and flag.lower() != "true":
            raise InvalidAttributeValue(
                f"Invalid value for the parameter {_FIFO}. Reason: Modifying queue type is not supported."
            )
        await self._queues.set_attributes(name, attributes)

    async def _tag(self, call: Call, request: shapes.TagQueueRequest) -> None:
        if not request.tags:
            raise MissingParameter("The request must contain the parameter Tags.")
        await self._queues.tag(call.queue(request.queue_url), request.tags)

    async def _untag(self, call: Call, request: shapes.UntagQueueRequest) -> None:
        if request.tag_keys is None:
            raise MissingParameter("The request must contain the parameter TagKeys.")
        check_tag_keys(request.tag_keys)
        await self._queues.untag(call.queue(request.queue_url), request.tag_keys)

    async def _list_tags(self, call: Call, request: shapes.ListQueueTagsRequest) -> shapes.ListQueueTagsResult:
        queue = await self._queues.find(call.queue(request.queue_url))
        return shapes.ListQueueTagsResult(tags=queue.tags or None)


def _own(call: Call, name: str | None) -> QueueName:
    """Name a queue of the caller's own account and region."""
    if not name:
        raise InvalidParameter("Value for parameter QueueName is invalid. Reason: Must specify a queue name.")
    return QueueName(call.caller.region, call.caller.account, name)


def _check_new(name: QueueName, attributes: Mapping[str, str]) -> None:
    """Refuse a new queue whose name and FifoQueue attribute do not say the same, as SQS does."""
    flag = attributes.get(_FIFO)
    if name.fifo and flag is None:
        raise InvalidParameter(NAME_RULE)
    if flag is not None and not name.fifo and flag.lower() != "true":
        raise InvalidAttributeName(f"Unknown Attribute {_FIFO}.")


def _next_token(page: Page, asked: int | None) -> str | None:
    """Make the token of the next page; SQS gives one only to those who said how long a page is."""
    if page.after is None or asked is None:
        return None
    return base64.urlsafe_b64encode(page.after.encode()).decode()


def _after(token: str | None) -> str:
    if not token:
        return ""
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise InvalidParameter("Invalid or expired next token.") from None
