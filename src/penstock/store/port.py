"""What every store does, in the words of the domain; `tests/conformance` holds each implementation to it.

Rules for all verbs:

- A verb returns after its effects are durable. It happens wholly or not at all, in one transaction.
- Concurrent calls are gathered and committed together; what one of them raises stays with that one.
- *Now* is the store's: on SQLite its own time, which goes on with the injected clock; on PostgreSQL the database's
  clock, or the injected one when that is pinned. Within one store it never goes back. Instants that a verb takes or
  returns are the wall clock's.
- Every verb may raise `StoreUnavailable`; then the caller does not know whether it happened, and may try again with the
  same attempt key. A store resolves what it can resolve itself first.
- Verbs that take a `Queue` act on the queue with that id as it is now. If it is gone they raise `QueueDoesNotExist`.
  They take the policies (retention, redrive) from the value passed in, which may be a moment old on PostgreSQL.
- A cancelled call may or may not have happened, like one that raised `StoreUnavailable`; but a cancelled lease gives
  back whatever it leased, at once, as `release` does.

A message is in one of three states: *delayed* (sent, never visible yet), *visible*, or *leased* (in flight). It is
expired once `sent_at_ms + retention` has come, and from then on no verb delivers it, counted or not. Sweeping only
removes what no verb shows any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import msgspec

from penstock.domain.message import Message, Peeked, SendResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from penstock.domain.errors import PenstockError
    from penstock.domain.message import Draft, MessageState, Receipt, Refused, VisibilityChange
    from penstock.domain.move import MoveTask
    from penstock.domain.queue import Counts, Queue, QueueAttributes, QueueName
    from penstock.store.job_port import JobStore

AttemptKey = bytes
"""Names one request of one caller, the same on every retry of it: 16 to 32 bytes."""

FULL_AGAIN_MS = 1_000
"""When to look again at a queue that has as many messages in flight as it may have. A delete makes room there,
but wakes nobody."""


class Leased(msgspec.Struct, frozen=True, gc=False):
    """What a lease gave. `next_in_ms` says in how long something hidden comes due, but for what this lease hides.

    It may be too early, never too late. None: nothing is hidden, only a change can make a message leasable; or, with
    messages, that nobody looked. It is 0, with or without messages, where the lease stopped at a bound on its work and
    is worth calling again. `holder` is what `release` needs to take the messages back.
    """

    messages: list[Message]
    next_in_ms: int | None = None
    holder: int = 0


class Peek(msgspec.Struct, frozen=True, gc=False):
    """What a peek saw. `after` asks for what follows; None: there was nothing beyond.

    It may have seen nothing and yet have an `after`, where it stopped at a bound on its work.
    """

    messages: list[Peeked]
    after: int | None = None


class StoreVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What a store runs on: the database with its version, as `PostgreSQL 16.4`, and the number of its schema."""

    database: str
    schema: int


class Store(Protocol):
    """The durable truth about queues and messages."""

    @property
    def secret(self) -> bytes:
        """A random key of 32 bytes, made with the store and kept in it: it signs receipt handles."""

    @property
    def jobs(self) -> JobStore:
        """The jobs, in the same database."""

    def listen(self, ready: Callable[[int, int], None]) -> None:
        """Have `ready(queue_id, count)` called on the event loop whenever messages may have become leasable sooner
        than told.

        That is after the commit of an append, a dead-letter or task move into the queue, a release, a visibility change
        to an earlier instant, and on FIFO also of a delete that may let a group go on. `count` is a hint of
        how many. Other nodes' changes are reported too, soon but not surely.
        """

    async def close(self) -> None:
        """Finish what is under way, refuse what comes after, and let go of all resources."""

    async def ping(self) -> None:
        """Return if the store can be read and written; raise `StoreUnavailable` if it cannot."""

    async def version(self) -> StoreVersion:
        """Return what the store runs on, for people. Raises `StoreUnavailable`."""

    # -- queues -----------------------------------------------------------------------------------

    async def create_queue(
        self, name: QueueName, attributes: QueueAttributes, tags: Mapping[str, str]
    ) -> tuple[Queue, bool]:
        """Create a queue and return it with True; or return the one that has this name, unchanged, with False.

        Raises `QueueDeletedRecently` within `limits.name_reuse_ms` of the deletion of one of this name.
        """

    async def find_queue(self, name: QueueName) -> Queue:
        """Return a queue, or raise `QueueDoesNotExist`.

        Cheap enough for every request: stores keep a cache, which on PostgreSQL may be a second behind other nodes.
        """

    async def list_queues(
        self,
        region: str,
        account: str,
        *,
        prefix: str = "",
        after: str = "",
        limit: int,
    ) -> list[Queue]:
        """Return queues in the order of their names, from the first name that is greater than `after`."""

    async def list_places(self, *, after: tuple[str, str] = ("", ""), limit: int) -> list[tuple[str, str]]:
        """Return the regions and accounts that have queues, in their order, from the first that is greater than
        `after`, at a cost that does not depend on how many queues there are.
        """

    async def dead_letter_sources(self, name: QueueName, *, after: str = "", limit: int) -> list[Queue]:
        """Return the queues whose redrive policy names this one, in the order of their names, after `after`."""

    async def save_queue(
        self,
        queue: Queue,
        *,
        attributes: QueueAttributes | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Queue | None:
        """Replace the attributes, the tags, or both; return None if the revision is not `queue.revision` any more."""

    async def delete_queue(self, queue: Queue) -> None:
        """Delete a queue with all its messages, at a cost that does not depend on how many there are."""

    async def purge_queue(self, queue: Queue) -> None:
        """Remove all messages of a queue, leased and delayed ones too, at a cost that does not depend on how many
        there are.

        Deduplication windows end with it, as those of SQS do; outcomes and sequence numbers go on. Raises
        `PurgeInProgress` within `limits.purge_interval_ms` of the last purge.
        """

    async def count_messages(self, queue: Queue) -> Counts:
        """Count the messages without walking over them. Expired ones may be counted until they are swept.

        It includes whatever was answered before it was asked for. But on PostgreSQL, while time flows, counts of large
        queues are believed for a while, and then include only what this node has sent since.
        """

    # -- messages ---------------------------------------------------------------------------------

    async def append(
        self,
        queue: Queue,
        drafts: Sequence[Draft | Refused],
        *,
        attempt: AttemptKey | None = None,
    ) -> list[SendResult]:
        """Store the drafts, in order, all in one transaction, and answer for each; what is `Refused` stays so.

        With an attempt key, an earlier append with that key within `limits.outcome_window_ms` decides everything: its
        answer is returned, also for a queue that was since purged or changed, and nothing is written. Otherwise the
        answer is kept with the key, in the same transaction as the messages. (An append of nothing but refusals keeps
        nothing.)

        On FIFO, a draft whose deduplication id was stored within `limits.deduplication_window_ms`, in the queue or in
        its group as the scope says, is not stored: the answer is the first one's id and sequence number. Two such
        drafts in one call count too. Sequence numbers grow in the order of commits within a group, and survive
        restarts and purges.
        """

    async def outcome(self, attempt: AttemptKey) -> list[SendResult] | None:
        """Return the answer kept with the key of an earlier append, whatever became of its queue, or None."""

    async def lease(
        self,
        queue: Queue,
        *,
        count: int,
        lease_ms: int,
        attempt: AttemptKey | None = None,
        retry: int = 0,
    ) -> Leased:
        """Lease up to `count` visible messages for `lease_ms`, hiding them until then. Never waits for messages.

        Each delivery has a `receipt` greater than any before of that message. With `lease_ms` 0 the message is
        delivered and stays visible, but comes once in one call.

        - Standard queues: oldest first as far as that is cheap, and what was received before comes before what was sent
          after it. Among messages with a group, those of groups with fewer
          messages in flight come first; messages without a group count as a group with nothing in flight; then older
          first.
        - FIFO: strictly by sequence number within a group, which gives what comes before its first message that is
          leased or delayed; several of one group may come in one call, adjacent and in order.
        - Expired messages are skipped, and may be removed.
        - With a redrive policy whose dead-letter queue exists: a message that was received in this queue
          `max_receive_count` times is not delivered but moved, in this same transaction. It keeps its message id; it
          arrives visible, with `dead_letter_source` set to this queue's ARN whatever it was before, its sent time kept
          on a standard queue, and renewed (with a new sequence number in the same group) on FIFO. Its `receive_count`
          goes on, but a policy of its new queue counts from 0. Older receipts of it name nothing any more. Without such
          a queue it is delivered.
        - Gives fewer than asked for to stay within as many leased messages of the queue as `limits` allow. If there are
          as many already, a standard queue raises `OverLimit`, and a FIFO queue gives nothing.
        - With an attempt key: if an earlier lease with that key (within `limits.outcome_window_ms`) gave messages of
          which any is still leased under the same receipt, those are the answer again, with the same receipts and
          counts, and their lease is renewed to `lease_ms` from now (never shortened). On FIFO those are left out that
          are behind a message of that lease which came back. If none are left, it is a new lease.
        - `retry` is the number that the caller gave this retry of the request, or 0. It decides which of several
          requests with one attempt key holds the messages, and so may release them: see `release`.
        """

    async def release(self, queue: Queue, receipts: Sequence[Receipt], *, holder: int = 0) -> None:
        """Undo deliveries that never reached their consumer: visible at once, and `receive_count` as before the lease.

        Only the receipt of the last delivery does that, and only for its `holder`; any other is passed over. On FIFO
        the receipt is expired from then on. The request that leases is the holder. A retry that is given the same
        messages becomes the holder if its number is greater. Otherwise it may be the older of the two, come late; then
        there is no holder any more, and only the consumer or the end of the lease makes them visible. Nor is there one
        after a change of visibility: whoever made it counts on it.
        """

    async def delete(self, queue: Queue, receipts: Sequence[Receipt]) -> list[PenstockError | None]:
        """Delete the messages that these receipts name. Each entry is judged by itself; None is success.

        A receipt whose message is gone from the queue: success. On a standard queue, every receipt that was given for a
        message deletes it, whoever holds it now. On FIFO, one whose lease is over is `ReceiptHandleExpired`.
        """

    async def change_visibility(self, queue: Queue, changes: Sequence[VisibilityChange]) -> list[PenstockError | None]:
        """Hide messages for another time from now on. Each entry is judged by itself; None is success.

        On a standard queue, every receipt that was given for a message does that, whoever holds it now, and be it
        visible: hidden again, it is in flight. On FIFO, one whose lease is over is `ReceiptHandleExpired`.
        `MessageDoesNotExist` for a message that is gone from the queue. `InvalidParameter` if it would stay hidden for
        more than `limits.lease_ms_max` from its last lease on; it can be made visible at any time.
        """

    async def peek(self, queue: Queue, *, state: MessageState | None = None, after: int = 0, limit: int) -> Peek:
        """Show up to `limit` messages, those in `state` or all, in the order of their positions. Changes nothing.

        `after` is 0 or comes from an earlier peek, and is from 0 to 2**63 - 1. Expired messages are not shown. One call
        looks at `limits.peek_rows_max` messages at most, and shows `limits.peek_bytes_max` of bodies and attributes or
        one message more. What comes or goes between two calls may be seen or not; the rest is seen once.
        """

    # -- message move tasks -----------------------------------------------------------------------

    async def start_move(
        self,
        task_id: str,
        source: Queue,
        destination: Queue | None,
        rate: int | None,
        *,
        permitted: Collection[QueueName] | None = None,
    ) -> MoveTask:
        """Begin to move the visible messages of `source`. Raises `UnsupportedOperation` while one is running for it.

        Without a destination, messages go back to the queues that they came from, and only to those that are
        `permitted`, unless that is None: the task fails at the first that would have to go elsewhere.
        """

    async def cancel_move(self, task_id: str) -> MoveTask:
        """Stop a running task and return it. Raises `MoveTaskDoesNotExist` if it is not running."""

    async def list_moves(self, source: Queue, *, limit: int) -> list[MoveTask]:
        """Return the tasks of a queue, newest first. At least `limits.moves_kept_per_queue_max` are kept."""

    async def advance_moves(self) -> int | None:
        """Do one bounded step of every running task that is due; say in how many ms the next step is due, None if
        none runs.

        A step moves at most `limits.sweep_rows_max` messages, and so many that the rate holds (a tenth of a second's
        worth, at least one; the next step is due when the rate allows). Pacing and progress are in the store: any node
        may call this at any time, also after a restart. A moved message is a new one: a new id from the id source, sent
        now, receive count 0, visible at once whatever its delay was, no `dead_letter_source`, on FIFO with a new
        sequence number in its group, in order and without regard to deduplication. A task completes when its source has
        no visible message left (FIFO: none that could be leased); it fails when its destination is gone,
        or has no destination and meets a message whose `dead_letter_source` is None or gone.
        """

    # -- upkeep -----------------------------------------------------------------------------------

    async def sweep(self) -> bool:
        """Do one bounded pass of upkeep and say whether there is more to do at once.

        Removes up to about `limits.sweep_rows_max` of: expired messages, messages of purged and deleted queues,
        outcomes and deduplication entries past their windows, ended move tasks beyond those kept, names free again.
        """


Answer_contra = TypeVar("Answer_contra", contravariant=True)


class Done(Protocol[Answer_contra]):
    """Is told, on the event loop, what came of something that was begun: an answer, or None and an error.

    Should it raise, it is told so in the same way, once, that nobody be left waiting for it.
    """

    def __call__(self, answer: Answer_contra | None, error: BaseException | None, /) -> None: ...


@runtime_checkable
class PromptStore(Protocol):
    """What a store offers besides if its verbs wait for nothing but a commit: to begin them without a coroutine.

    What takes a few steps more than that is left to the verbs themselves: then the answer is None or False, and nothing
    was done.
    """

    def known_queue(self, name: QueueName) -> Queue | None:
        """Return a queue if it is at hand. One that is not may exist all the same."""

    def begin_append(
        self,
        queue: Queue,
        drafts: Sequence[Draft | Refused],
        *,
        attempt: AttemptKey | None,
        done: Done[list[SendResult]],
    ) -> bool:
        """Do what `append` does; `done` is told after the commit."""

    def begin_lease(
        self, queue: Queue, *, count: int, lease_ms: int, attempt: AttemptKey | None, retry: int, done: Done[Leased]
    ) -> bool:
        """Do what `lease` does; `done` is told after the commit. It cannot be cancelled, but its messages released."""

    def begin_delete(
        self, queue: Queue, receipts: Sequence[Receipt], *, done: Done[list[PenstockError | None]]
    ) -> bool:
        """Do what `delete` does; `done` is told after the commit."""
