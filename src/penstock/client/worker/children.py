"""Tasks in processes of their own, so that code which hangs in C can be ended: both sides of what is said."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.tasks.context import Context, enter
from penstock.client.tasks.retries import Discard, RetryAfter, Snooze
from penstock.client.worker.child_calls import Asked, ParentSenders, answered
from penstock.client.worker.notices import Trouble
from penstock.client.worker.processes.frames import Assignment
from penstock.client.worker.processes.pool import Pool
from penstock.client.worker.troubles import TroubleError, is_permanent, trouble_of

if TYPE_CHECKING:
    from penstock.client.tasks.task import Task
    from penstock.client.verbs.caller import AsyncSender
    from penstock.client.worker.attempt import Attempt
    from penstock.client.worker.processes.channel import Channel

ENTRY = "penstock.client.worker.children:run_task"


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    """What the task may know of its job."""

    id: str
    queue: str
    attempt: int
    failures: int
    losses: int
    tenant: str
    tags: tuple[str, ...]
    correlation_id: str
    enqueued_at_ms: int


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """What the child is to do."""

    info: _Info
    payload: bytes
    left_s: float
    by_parent: bool
    """Whether the calls of its app go to the parent."""


class _Event(msgspec.Struct, frozen=True, tag=True):
    kind: str
    data: bytes


class _Record(msgspec.Struct, frozen=True, tag=True):
    step: str
    result: bytes


class _Recorded(msgspec.Struct, frozen=True, tag=True):
    pass


class _Returned(msgspec.Struct, frozen=True, tag=True):
    value: bytes
    """JSON text."""


class _Raised(msgspec.Struct, frozen=True, tag=True):
    trouble: Trouble
    permanent: bool


class _Decided(msgspec.Struct, frozen=True, tag=True):
    verdict: str
    delay_ms: int
    reason: str


_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(_Event | _Record | _Recorded | Asked).decode
_decode_outcome = msgspec.msgpack.Decoder(_Returned | _Raised | _Decided).decode
_decode_steps = msgspec.msgpack.Decoder(dict[str, bytes]).decode
_decode_call = msgspec.msgpack.Decoder(_Call).decode


class Children:
    """Runs attempts of tasks in child processes, at most `size` at once.

    With a `sender`, all calls of their app are sent by it, from here, and not to the app's own URL.
    """

    def __init__(self, *, size: int, sender: AsyncSender | None = None) -> None:
        self._size = size
        self._sender = sender
        self._pool: Pool | None = None

    async def run(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - whatever the task returns
        """Return what the task returned, and raise what it raised; if this is cancelled, the child is killed."""
        if self._pool is None:
            self._pool = Pool(entry=ENTRY, size=self._size)
        task, offer = attempt.task, attempt.offer
        info = _Info(**{name: getattr(offer, name) for name in _Info.__struct_fields__})
        call = _Call(
            info=info,
            payload=task.signature.encode(args, kwargs),
            left_s=max(attempt.deadline - time.monotonic(), 0.0),
            by_parent=self._sender is not None,
        )
        assignment = Assignment(
            module=task.function.__module__, qualname=task.function.__qualname__, call=_encode(call)
        )
        outcome = _decode_outcome(await self._pool.run(assignment, handle=_Answers(attempt, self._sender)))
        match outcome:
            case _Returned(value):
                return task.result.decode(value)
            case _Raised(trouble, permanent):
                raise TroubleError(trouble, permanent=permanent)
            case _Decided(verdict, delay_ms, reason):
                raise _verdict(verdict, delay_ms, reason)

    async def close(self) -> None:
        """End all children."""
        if self._pool is not None:
            await self._pool.close()


class _Answers:
    """Answers what a child asks for its attempt."""

    def __init__(self, attempt: Attempt, sender: AsyncSender | None) -> None:
        self._attempt = attempt
        self._sender = sender

    async def __call__(self, request: bytes) -> bytes:
        asked = _decode_request(request)
        if isinstance(asked, Asked):
            assert self._sender is not None, "a child asks only if its call says so"
            return await answered(asked, self._sender)
        events = self._attempt.events or self._attempt.open_events()
        match asked:
            case _Event(kind, data):
                events.add(kind, data)
            case _Record(step, result):
                await events.record(step, result)
            case _Recorded():
                return _encode({name: bytes(result) for name, result in (await events.recorded()).items()})
        return b""


def _verdict(name: str, delay_ms: int, reason: str) -> Exception:
    match name:
        case "Snooze":
            return Snooze(delay_ms / 1_000)
        case "RetryAfter":
            return RetryAfter(delay_ms / 1_000, reason)
        case _:
            return Discard(reason)


# -- in the child -------------------------------------------------------------------------------------


class _ChildRecords:
    """Sends events and steps to the parent, which has the lease."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def add(self, kind: str, data: bytes) -> None:
        self._channel.ask(_encode(_Event(kind, data)))

    def record_sync(self, step: str, result: bytes) -> None:
        self._channel.ask(_encode(_Record(step, result)))

    def recorded_sync(self) -> dict[str, msgspec.Raw]:
        steps = _decode_steps(self._channel.ask(_encode(_Recorded())))
        return {name: msgspec.Raw(result) for name, result in steps.items()}

    async def record(self, step: str, result: bytes) -> None:
        self.record_sync(step, result)

    async def recorded(self) -> dict[str, msgspec.Raw]:
        return self.recorded_sync()


def run_task(target: Task[..., Any, Any], call: bytes, channel: Channel) -> bytes:
    """Run a task in this process, which is a child, and return how it ended."""
    wanted = _decode_call(call)
    deadline = time.monotonic() + wanted.left_s
    if wanted.by_parent:
        target.app.use_senders(ParentSenders(lambda asked: channel.ask(_encode(asked))))
    enter(Context(wanted.info, target.name, lambda: _ChildRecords(channel), deadline))
    try:
        args, kwargs = target.signature.decode(wanted.payload)
        value = target.function(*args, **kwargs)
        outcome: _Returned | _Raised | _Decided = _Returned(target.result.encode(value))
    except (Snooze, RetryAfter, Discard) as verdict:
        outcome = _Decided(type(verdict).__name__, getattr(verdict, "delay_ms", 0), str(verdict))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a task raises is reported
        outcome = _Raised(trouble_of(error), is_permanent(error, target.retry))
    return _encode(outcome)
