"""`TaskQueueHandler`: many tasks of one entity on an SQS FIFO queue, with a boto3 client."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.api import is_async
from penstock.client.task_queue import scripts
from penstock.client.task_queue.processing import TaskQueue
from penstock.client.task_queue.tasks import tasks_to_send

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.client.task_queue.scripts import Enqueued, Script

logger = logging.getLogger("penstock.task_queue")
T = TypeVar("T")


class TaskQueueHandler(TaskQueue):
    """Enqueues tasks and runs callbacks on them: `TaskQueueHandler(boto3.client("sqs"), queue_url, dlq_url)`.

    Each task of an entity has a message group of its own, so tasks run in parallel and one that fails holds up no
    other. A task is deleted only when its callback has returned.
    """

    def __init__(
        self,
        sqs_client: Any,  # noqa: ANN401 - boto3 has no types for its clients
        queue_url: str,
        dlq_url: str | None = None,
        **settings: Any,  # noqa: ANN401 - those of `TaskQueue`
    ) -> None:
        super().__init__(sqs_client, queue_url, dlq_url, **settings)
        if is_async(sqs_client):
            raise ConsumerInvalid("This is a client of aiobotocore: use AsyncTaskQueueHandler.")

    @classmethod
    def from_env(cls, **settings: Any) -> Self:  # noqa: ANN401 - as above
        """Make a handler of AWS_DEFAULT_REGION, SQS_TASK_QUEUE_URL and SQS_DLQ_URL, which may be missing."""
        region, queue_url, dlq_url = environment()
        try:
            import boto3  # noqa: PLC0415 - only those who ask for it need it
        except ModuleNotFoundError:
            raise ModuleNotFoundError("boto3 is not installed: pip install 'penstock[sqs]'") from None
        return cls(boto3.client("sqs", region_name=region), queue_url, dlq_url, **settings)

    def enqueue_tasks(
        self,
        entity_id: str | int,
        tasks: Iterable[Mapping[str, Any]],
        metadata: Mapping[str, Any] | None = None,
        *,
        run: object = None,
    ) -> Enqueued:
        """Enqueue tasks, each a dict with a `name` and perhaps a `config`; return how many, with `failed` for the rest.

        All are checked before the first is sent. The same call within 5 minutes enqueues nothing twice, unless `run`
        differs. Raises `ConsumerInvalid`, or what the client raises if nothing was enqueued.
        """
        sent = tasks_to_send(entity_id, tasks, metadata, run=run, wall_ms=self._clock.wall_ms())
        enqueued = self._run_script(scripts.enqueue(self.queue_url, sent), self.queue_url)
        logger.info("Enqueued %d/%d tasks for entity %s", enqueued, len(sent), entity_id)
        return enqueued

    def get_queue_status(self) -> dict[str, int]:
        """Return `messages_available`, `messages_in_flight` and `messages_delayed`."""
        return self._run_script(scripts.status(self.queue_url), self.queue_url)

    def get_dlq_messages(self, max_messages: int = 10, *, hold: int = 0) -> list[dict[str, Any]]:
        """Return dead letters, without hiding them.

        `retry_count` is how often a message was received before. With `hold` they are hidden for so many seconds,
        during which `receipt_handle` can delete them.
        """
        if not self.dlq_url:
            logger.warning("No DLQ configured")
            return []
        return self._run_script(scripts.look(self.dlq_url, max_messages, hold, self._denial), self.dlq_url)

    def redrive(self, *, rate: int | None = None) -> str:
        """Have SQS move all dead letters back, at most `rate` a second; return the handle of the move task."""
        dlq_url = self._dlq()
        return self._run_script(scripts.redrive(dlq_url, rate), dlq_url)

    def _run_script(self, script: Script[T], queue_url: str) -> T:
        """Run a script to its end."""
        try:
            step = next(script)
            while True:
                if isinstance(step, scripts.Pause):
                    time.sleep(step.seconds)
                    step = script.send(None)
                    continue
                try:
                    answer = getattr(self.sqs_client, step.operation)(**step.parameters)
                except Exception as error:  # noqa: BLE001 - the script decides
                    step = script.throw(error)
                else:
                    step = script.send(answer)
        except StopIteration as ended:
            returned: T = ended.value
            return returned
        except Exception as error:
            scripts.explain(error, queue_url)
            raise


def environment() -> tuple[str, str, str | None]:
    """Return the region, the queue and the dead-letter queue that the environment names."""
    missing = [name for name in ("AWS_DEFAULT_REGION", "SQS_TASK_QUEUE_URL") if not os.environ.get(name)]
    if missing:
        raise ConsumerInvalid(f"Set {' and '.join(missing)} in the environment.")
    return os.environ["AWS_DEFAULT_REGION"], os.environ["SQS_TASK_QUEUE_URL"], os.environ.get("SQS_DLQ_URL") or None
