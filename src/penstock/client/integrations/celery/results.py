"""`MovedResult`: what `delay` and `apply_async` of a moved task return."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from celery import states
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult, assert_will_not_block

from penstock.client.errors import JobCancelled, JobDead, JobUnfinished
from penstock.client.integrations.celery.codec import SENT_BACK
from penstock.client.integrations.celery.errors import CeleryUnsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.client.tasks.job import Job
    from penstock.wire.jobs.answers import State

T = TypeVar("T")

STATES: Mapping[State, str] = {
    "scheduled": states.PENDING,
    "queued": states.PENDING,
    "offered": states.PENDING,
    "running": states.STARTED,
    "retrying": states.RETRY,
    "succeeded": states.SUCCESS,
    "dead": states.FAILURE,
    "cancelled": states.REVOKED,
}


class MovedResult(AsyncResult):  # type: ignore[misc] # Celery has no types.
    """The result of a job, with the methods of Celery's. It needs no result backend.

    A task that failed raises `JobDead` in `get`, with what is known of its exception: its class is not imported here.
    """

    def __init__(self, task_id: str, job: Job[Any], app: Any) -> None:  # noqa: ANN401 - Celery has no types
        super().__init__(task_id, app=app)
        self.job = job
        """The job itself."""
        self._meta: dict[str, Any] | None = None
        """What is known of a job that has ended."""

    def get(  # noqa: PLR0913, PLR0917 - the signature is Celery's
        self,
        timeout: float | None = None,
        propagate: bool = True,  # noqa: FBT001, FBT002 - as above
        interval: float = 0.5,
        no_ack: bool = True,  # noqa: FBT001, FBT002 - as above
        follow_parents: bool = True,  # noqa: FBT001, FBT002 - as above
        callback: Callable[[str, Any], object] | None = None,
        on_message: object = None,
        on_interval: object = None,
        disable_sync_subtasks: bool = True,  # noqa: FBT001, FBT002 - as above
        **others: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - whatever the task returned
        """Wait for the result; an hour if no timeout is given.

        Raises `JobDead`, Celery's `TimeoutError` and `TaskRevokedError`, or `JobNotFound`.
        """
        if on_message is not None or on_interval is not None:
            raise CeleryUnsupported("get of a moved task has neither on_message nor on_interval: use job.events().")
        if disable_sync_subtasks:
            assert_will_not_block()
        try:
            value = blocking(self.job.result_sync, timeout)
        except JobUnfinished as error:
            raise self.TimeoutError(str(error)) from error
        except JobCancelled as error:
            if propagate:
                raise TaskRevokedError(str(error)) from error
            return TaskRevokedError(str(error))
        except JobDead as error:
            if propagate:
                raise
            return error
        if value == SENT_BACK:
            return super().get(timeout, propagate, interval, no_ack, follow_parents, callback, **others)
        if callback is not None:
            callback(self.id, value)
        return value

    wait = get

    def revoke(self, *_: object, **__: object) -> None:
        """Cancel the job. If it runs it is asked to stop, whether or not `terminate` is given."""
        blocking(self.job.cancel_sync)

    def forget(self) -> None:
        """Not supported: raises `CeleryUnsupported`."""
        raise CeleryUnsupported("A moved task's result cannot be forgotten. It goes with its job, after its retention.")

    def then(self, *_: object, **__: object) -> None:
        """Not supported: raises `CeleryUnsupported`."""
        raise CeleryUnsupported("Use task.call(…).then(…) for what follows a moved task.")

    def exists(self) -> bool:
        """Return True; raises `JobNotFound` if there is no such job."""
        blocking(self.job.view_sync)
        return True

    def _get_task_meta(self) -> dict[str, Any]:
        """Return what Celery's properties `state`, `result`, `traceback` and the others read."""
        if self._meta is not None:
            return self._meta
        view = blocking(self.job.view_sync)
        state = STATES[view.state]
        meta: dict[str, Any] = {"status": state, "result": None, "traceback": None, "children": None}
        if state == states.SUCCESS:
            meta["result"] = blocking(self.job.result_sync, 0)
            if meta["result"] == SENT_BACK:
                sent: dict[str, Any] = super()._get_task_meta()
                return sent
        elif state in states.EXCEPTION_STATES:
            meta["result"] = self.get(timeout=0, propagate=False, disable_sync_subtasks=False) if _over(state) else None
            failure = getattr(meta["result"], "failure", None)
            meta["traceback"] = getattr(failure, "details", None) or None
        if _over(state):
            if view.finished_at_ms is not None:
                meta["date_done"] = datetime.fromtimestamp(view.finished_at_ms / 1_000, UTC)
            self._meta = meta
        return meta

    def __copy__(self) -> MovedResult:
        return MovedResult(self.id, self.job, self.app)

    def __reduce__(self) -> Any:  # noqa: ANN401 - as above
        raise TypeError("A result of a moved task cannot be pickled. Keep its id, and ask moves.result(task, id).")


def _over(state: str) -> bool:
    return state in states.READY_STATES


def blocking(function: Callable[..., T], *args: object) -> T:
    """Call what blocks, also where an event loop runs: Celery's calls block there, too."""
    import asyncio  # noqa: PLC0415 - only who waits needs it

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function(*args)
    made: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            made.append(function(*args))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            raised.append(error)

    thread = threading.Thread(target=work, name="penstock-celery", daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return made[0]
