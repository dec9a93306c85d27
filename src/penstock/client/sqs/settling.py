"""Settling: tell SQS what becomes of messages, in batches whose own partial failures are tried again."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

from penstock.client.sqs.api import BATCH_MAX
from penstock.client.sqs.events import log
from penstock.client.sqs.problems import is_denied, is_missing, is_stale
from penstock.domain.clock import sleep_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.client.sqs.api import SqsApi
    from penstock.client.sqs.delivery import Delivery
    from penstock.client.sqs.denial import Denial
    from penstock.client.sqs.heartbeats import Heartbeats
    from penstock.domain.clock import Clock

TRIES_MAX = 5
PAUSE_MS = 200
DELETES_AT_ONCE = 2


class Unsettled(Exception):
    """SQS did not take a delete or a change; the message says why."""

    def __init__(self, code: str, message: str) -> None:
        self.stale = is_stale(code, message)
        """Whether the receipt handle does not hold its message any more."""
        super().__init__(f"{code}: {message}")


class Settling:
    """Deletes messages, and makes them visible again."""

    def __init__(self, api: SqsApi, queue_url: str, *, clock: Clock, heartbeats: Heartbeats, denial: Denial) -> None:
        self._api = api
        self._queue_url = queue_url
        self._clock = clock
        self._heartbeats = heartbeats
        self._denial = denial
        self._to_delete: list[tuple[Delivery, asyncio.Future[Exception | None]]] = []
        self._deleting: set[asyncio.Task[None]] = set()

    # -- deletes --------------------------------------------------------------------------------------

    async def delete(self, delivery: Delivery) -> Exception | None:
        """Delete a message; return why that failed, or None. What is to be deleted meanwhile shares the next call.

        Heartbeats hold the message until then. If the caller is cancelled, the delete goes on.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Exception | None] = loop.create_future()
        self._to_delete.append((delivery, answered))
        # Not at once: what ends in the same turn of the loop goes with it.
        loop.call_soon(self._start_deletes)
        return await asyncio.shield(answered)

    async def finish_deletes(self) -> None:
        """Return once everything that was to be deleted is, or is given up."""
        self._start_deletes()
        while self._deleting:
            await asyncio.wait(self._deleting)

    def _start_deletes(self) -> None:
        while self._to_delete and len(self._deleting) < DELETES_AT_ONCE:
            taken, self._to_delete = self._to_delete[:BATCH_MAX], self._to_delete[BATCH_MAX:]
            task = asyncio.create_task(self._delete_all(taken), name="penstock-sqs-delete")
            self._deleting.add(task)
            task.add_done_callback(self._deleted)

    def _deleted(self, task: asyncio.Task[None]) -> None:
        self._deleting.discard(task)
        self._start_deletes()

    async def _delete_all(self, taken: list[tuple[Delivery, asyncio.Future[Exception | None]]]) -> None:
        entries: list[tuple[dict[str, Any], Delivery]] = [({}, delivery) for delivery, _ in taken]
        errors = await self._send("delete_message_batch", entries)
        for delivery, answered in taken:
            self._heartbeats.forget(delivery)
            if not answered.done():
                answered.set_result(errors.get(delivery))

    # -- visibility -----------------------------------------------------------------------------------

    async def delay(self, delivery: Delivery, delay_s: int) -> int | None:
        """Make a message visible again after so many seconds; return them, or None if that could not be changed."""
        await self._heartbeats.drop(delivery)
        delay_s = min(delay_s, delivery.longest_s(self._clock.now_ms()))
        return delay_s if delivery in await self._change([(delivery, delay_s)]) else None

    async def release(self, deliveries: Iterable[Delivery]) -> set[Delivery]:
        """Make messages visible at once; return those for which that worked.

        The later of a group go first: they stay behind the earlier ones, which still hide, and so the whole group comes
        back at one instant and in order.
        """
        reversed_ = sorted(deliveries, key=lambda one: one.message.sequence or "", reverse=True)
        await asyncio.gather(*(self._heartbeats.drop(one) for one in reversed_))
        return await self._change([(one, 0) for one in reversed_])

    async def _change(self, changes: Sequence[tuple[Delivery, int]]) -> set[Delivery]:
        changed: set[Delivery] = set()
        for start in range(0, len(changes), BATCH_MAX):
            if self._denial.known:
                break
            part = changes[start : start + BATCH_MAX]
            entries: list[tuple[dict[str, Any], Delivery]] = [
                ({"VisibilityTimeout": delay_s}, delivery) for delivery, delay_s in part
            ]
            errors = await self._send("change_message_visibility_batch", entries)
            changed.update(delivery for delivery, _ in part if delivery not in errors)
            for delivery, error in errors.items():
                if not self._denial.known:
                    log(logging.WARNING, "visibility not changed", message=delivery.message.id, error=error)
        return changed

    # -- batches --------------------------------------------------------------------------------------

    async def _send(
        self, operation: str, entries: Sequence[tuple[dict[str, Any], Delivery]]
    ) -> dict[Delivery, Exception]:
        """Call a batch operation until each entry succeeded, is refused for good, or was tried often enough."""
        left = list(entries)
        errors: dict[Delivery, Exception] = {}
        for tried in range(TRIES_MAX):
            if tried:
                pause_ms = PAUSE_MS * 2**tried * random.uniform(0.5, 1)  # noqa: S311 - jitter is no secret
                await sleep_until(self._clock, self._clock.now_ms() + int(pause_ms))
            named = {str(place): entry for place, entry in enumerate(left)}
            sent = [{"Id": name, "ReceiptHandle": one.receipt, **more} for name, (more, one) in named.items()]
            try:
                answer = await self._api.call(operation, QueueUrl=self._queue_url, Entries=sent)
            except Exception as error:  # noqa: BLE001 - what is not known to be final is tried again
                errors |= {one: error for _, one in left}
                if is_denied(error) and operation.startswith("change"):
                    self._denial.note(error, self._queue_url)
                if is_denied(error) or is_missing(error):
                    break
                continue
            failed = {entry["Id"]: entry for entry in answer.get("Failed", [])}
            for name, (_, one) in named.items():
                errors.pop(one, None)
                if name in failed:
                    errors[one] = Unsettled(failed[name]["Code"], failed[name].get("Message", ""))
            left = [named[name] for name, entry in failed.items() if not _is_final(entry)]
            if not left:
                break
        return errors


def _is_final(refused: dict[str, Any]) -> bool:
    """Return whether trying an entry again is of no use."""
    return bool(refused.get("SenderFault")) or is_stale(refused["Code"], refused.get("Message", ""))
