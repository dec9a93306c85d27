"""Queues: create, find, list, describe, change, tag, purge, delete."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from penstock.domain.attributes import SETTABLE_NAMES, parse_attributes, refuse_redrive, render_attributes
from penstock.domain.errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidParameter,
    QueueDoesNotExist,
    QueueNameExists,
    StoreUnavailable,
)
from penstock.domain.limits import SECOND_MS
from penstock.domain.queue import FIFO_NAME_RULE, Queue, QueueAttributes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from penstock.domain.limits import Limits
    from penstock.domain.queue import Counts, QueueName
    from penstock.engine.waiters import Waiters
    from penstock.store.port import Store

_COUNT_NAMES = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    }
)
_READ_ONLY_NAMES = _COUNT_NAMES | {"QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", "FifoQueue"}
_POLICY = "Policy"
_REDRIVE = "RedrivePolicy"
_TAG = re.compile(r"(?:[\w.:/=+@-]|(?![\x00-\x1f\x7f-\x9f])\s)*")
_TAG_PREFIX_RESERVED = "aws:"
_TAG_KEY_CHARACTERS_MAX = 128
_TAG_VALUE_CHARACTERS_MAX = 256

SAVES_MAX = 100
"""How often a change is tried. It fails only where another node was quicker, so every failure is a success there."""


class Page(msgspec.Struct, frozen=True):
    """Some queues in the order of their names, and the name after which the rest follows, if there is a rest."""

    queues: list[Queue]
    after: str | None = None


class Queues:
    """The use cases around queues as a whole."""

    def __init__(self, store: Store, waiters: Waiters, limits: Limits) -> None:
        self._store = store
        self._waiters = waiters
        self._limits = limits
        # Changes of one queue take turns in this process; what other nodes do, its revision tells.
        self._turns: WeakValueDictionary[QueueName, asyncio.Lock] = WeakValueDictionary()

    async def find(self, name: QueueName) -> Queue:
        """Return a queue, or raise `QueueDoesNotExist`."""
        return await self._store.find_queue(name)

    async def create(
        self,
        name: QueueName,
        given: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Queue:
        """Create a queue. One that exists with all the attributes given is returned as it is."""
        name.check()
        settable = _without_fifo_flag(name, given or {})
        attributes = parse_attributes(name, settable, QueueAttributes())
        _check_tags(tags or {})
        self._check_tag_count(name, tags or {})
        await self._check_redrive(name, attributes, settable.get(_REDRIVE, ""))
        queue, created = await self._store.create_queue(name, attributes, tags or {})
        if not created:
            _check_agrees(queue, settable)
        return queue

    async def list_queues(
        self, region: str, account: str, *, prefix: str = "", after: str = "", limit: int | None = None
    ) -> Page:
        """List the queues of an account, a page at a time."""
        limit = self._page_size(limit)
        return _page(await self._store.list_queues(region, account, prefix=prefix, after=after, limit=limit + 1), limit)

    async def dead_letter_sources(self, name: QueueName, *, after: str = "", limit: int | None = None) -> Page:
        """List the queues that send their dead letters to this one, a page at a time."""
        await self.find(name)
        limit = self._page_size(limit)
        return _page(await self._store.dead_letter_sources(name, after=after, limit=limit + 1), limit)

    async def list_places(self, *, after: tuple[str, str] = ("", "")) -> list[tuple[str, str]]:
        """List where there are queues, region and account, in their order after this one; nothing is left after [].

        A page holds `limits.list_page_max` at most.
        """
        return await self._store.list_places(after=after, limit=self._limits.list_page_max)

    async def describe(self, name: QueueName, names: Iterable[str] = ("All",)) -> dict[str, str]:
        """Return attributes, settable and computed ones, in the form in which users read them."""
        wanted = set(names)
        unknown = wanted - SETTABLE_NAMES - _READ_ONLY_NAMES - {"All"}
        if unknown:
            raise InvalidAttributeName(f"Unknown Attribute {min(unknown)}.")
        queue = await self.find(name)
        described = {
            **render_attributes(queue.name, queue.attributes),
            "QueueArn": queue.name.arn,
            "CreatedTimestamp": str(queue.created_at_ms // SECOND_MS),
            "LastModifiedTimestamp": str(queue.modified_at_ms // SECOND_MS),
        }
        if "All" in wanted or wanted & _COUNT_NAMES:
            counts = await self._store.count_messages(queue)
            described["ApproximateNumberOfMessages"] = str(counts.visible)
            described["ApproximateNumberOfMessagesNotVisible"] = str(counts.in_flight)
            described["ApproximateNumberOfMessagesDelayed"] = str(counts.delayed)
        return described if "All" in wanted else {key: value for key, value in described.items() if key in wanted}

    async def count(self, name: QueueName) -> Counts:
        """Count the messages of a queue."""
        return await self._store.count_messages(await self.find(name))

    async def set_attributes(self, name: QueueName, given: Mapping[str, str]) -> Queue:
        """Change the attributes given, and only those."""
        settable = _without_fifo_flag(name, given)

        def changed(queue: Queue) -> QueueAttributes:
            return parse_attributes(name, settable, queue.attributes)

        if _REDRIVE in settable:
            # Only where it is given: a dead-letter queue that was deleted since must not keep the rest from changing.
            await self._check_redrive(name, changed(await self.find(name)), settable[_REDRIVE])
        return await self._save(name, attributes=changed)

    async def edit_policy(self, name: QueueName, edit: Callable[[str], str]) -> Queue:
        """Replace the policy by what `edit` makes of it. It may be called again, with what others made of it since."""

        def changed(queue: Queue) -> QueueAttributes:
            return parse_attributes(name, {_POLICY: edit(queue.attributes.policy)}, queue.attributes)

        return await self._save(name, attributes=changed)

    async def tag(self, name: QueueName, tags: Mapping[str, str]) -> Queue:
        """Add tags, replacing those of the same key."""
        _check_tags(tags)

        def merged(queue: Queue) -> Mapping[str, str]:
            together = {**queue.tags, **tags}
            self._check_tag_count(name, together)
            return together

        return await self._save(name, tags=merged)

    async def untag(self, name: QueueName, keys: Iterable[str]) -> Queue:
        """Remove tags; keys that no tag has are passed over."""
        gone = set(keys)
        return await self._save(
            name, tags=lambda queue: {key: value for key, value in queue.tags.items() if key not in gone}
        )

    async def purge(self, name: QueueName) -> None:
        """Remove all messages, at once."""
        await self._store.purge_queue(await self.find(name))

    async def delete(self, name: QueueName) -> None:
        """Delete a queue with its messages. Whoever waits on it learns that it is gone."""
        queue = await self.find(name)
        await self._store.delete_queue(queue)
        self._waiters.wake_all(queue.id)

    async def _save(
        self,
        name: QueueName,
        *,
        attributes: Callable[[Queue], QueueAttributes] | None = None,
        tags: Callable[[Queue], Mapping[str, str]] | None = None,
    ) -> Queue:
        """Apply a change to the queue as it is, again if another change came in between."""
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            for _ in range(SAVES_MAX):
                queue = await self.find(name)
                saved = await self._store.save_queue(
                    queue,
                    attributes=attributes(queue) if attributes else None,
                    tags=tags(queue) if tags else None,
                )
                if saved is not None:
                    return saved
        raise StoreUnavailable(f"Others changed {name.arn} every time that it was to be changed here.")

    async def _check_redrive(self, name: QueueName, attributes: QueueAttributes, policy: str) -> None:
        """Refuse a dead-letter queue that does not exist or does not want this queue's dead letters.

        It may be the queue itself.
        """
        if attributes.redrive is None:
            return
        try:
            target = await self.find(attributes.redrive.dead_letter_queue)
        except QueueDoesNotExist:
            raise refuse_redrive(policy, "Dead letter target does not exist.") from None
        allow = (attributes if target.name == name else target.attributes).redrive_allow
        if allow is not None and not allow.allows(name):
            raise refuse_redrive(policy, "The dead-letter queue's RedriveAllowPolicy does not allow this source queue.")

    def _check_tag_count(self, name: QueueName, tags: Mapping[str, str]) -> None:
        if len(tags) > self._limits.tags_max:
            raise InvalidParameter(f"Too many tags added for queue {name.name}.")

    def _page_size(self, limit: int | None) -> int:
        limit = self._limits.list_page_max if limit is None else limit
        if not 1 <= limit <= self._limits.list_page_max:
            raise InvalidParameter(
                f"Value {limit} for parameter MaxResults is invalid. "
                f"Reason: MaxResults must be between 1 and {self._limits.list_page_max}."
            )
        return limit


def check_tag_keys(keys: Collection[str]) -> None:
    """Refuse keys that no tag can have, and no keys at all."""
    if not keys or not all(1 <= len(key) <= _TAG_KEY_CHARACTERS_MAX for key in keys):
        raise InvalidParameter(f"Tag keys must be between 1 and {_TAG_KEY_CHARACTERS_MAX} characters in length.")


def _check_tags(tags: Mapping[str, str]) -> None:
    """Refuse tags that cannot be set."""
    if tags:
        check_tag_keys(tags)
    for key, value in tags.items():
        if key.lower().startswith(_TAG_PREFIX_RESERVED):
            raise InvalidParameter(f"Tag keys that start with {_TAG_PREFIX_RESERVED} are reserved.")
        if len(value) > _TAG_VALUE_CHARACTERS_MAX:
            raise InvalidParameter(f"Tag values must be at most {_TAG_VALUE_CHARACTERS_MAX} characters in length.")
        for what, text in (("keys", key), ("values", value)):
            if not _TAG.fullmatch(text):
                raise InvalidParameter(
                    f"Tag {what} may only contain unicode letters, digits, whitespace, "
                    "or one of these symbols: _ . : / = + - @"
                )


def _page(found: list[Queue], limit: int) -> Page:
    """Cut off the one queue too many that was asked for to see whether there are more."""
    return Page(found[:limit], after=found[limit - 1].name.name if len(found) > limit else None)


def _check_agrees(queue: Queue, given: Mapping[str, str]) -> None:
    """Refuse attributes that a queue does not have, and name the first of them."""
    wished = parse_attributes(queue.name, given, queue.attributes)
    if wished != queue.attributes:
        new, old = (render_attributes(queue.name, attributes) for attributes in (wished, queue.attributes))
        # What is kept but not shown may differ too: a period without the key that it is for.
        differs = next((key for key in given if new.get(key) != old.get(key)), min(given))
        raise QueueNameExists(
            f"A queue already exists with the same name and a different value for attribute {differs}"
        )


def _without_fifo_flag(name: QueueName, given: Mapping[str, str]) -> dict[str, str]:
    """Check that the name and the FifoQueue attribute agree; the name alone is kept."""
    settable = dict(given)
    flag = settable.pop("FifoQueue", None)
    if flag is not None and flag.lower() != "true":
        raise InvalidAttributeValue(
            "Invalid value for the parameter FifoQueue. Reason: it can only be true, or absent."
        )
    if flag is not None and not name.fifo:
        raise InvalidParameter(FIFO_NAME_RULE)
    return settable
