"""`AsyncTaskQueueHandler`: the same as `TaskQueueHandler`, with a client of aiobotocore."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.api import is_async
from penstock.client.task_queue import scripts
from penstock.client.task_queue.handler import environment
from penstock.client.task_queue.processing import TaskQueue
from penstock.client.task_queue.tasks import tasks_to_send

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from penstock.client.task_queue.scripts import Enqueued, Script

logger = logging.getLogger("penstock.task_queue")
T = TypeVar("T")


class AsyncTaskQueueHandler(TaskQueue):
    """Enqueues tasks and runs callbacks on them, with a client of aiobotocore. All methods are awaited."""

    def __init__(
        self,
        sqs_client: Any,  # noqa: ANN401 - aiobotocore has no types for its clients
        queue_url: str,
        dlq_url: str | None = None,
        **settings: Any,  # noqa: ANN401 - those of `TaskQueue`
    ) -> None:
        super().__init__(sqs_client, queue_url, dlq_url, **settings)
        if not is_async(sqs_client):
            raise ConsumerInvalid("This is not a client of aiobotocore: use TaskQueueHandler.")

    @classmethod
    @contextlib.asynccontextmanager
    async def from_env(cls, **settings: Any) -> AsyncIterator[Self]:  # noqa: ANN401 - as above
        """Make a handler of AWS_DEFAULT_REGION, SQS_TASK_QUEUE_URL and SQS_DLQ_URL; its client is closed at the end."""
        region, queue_url, dlq_url = environment()
        try:
            from aiobotocore.session import get_session  # noqa: PLC0415 - only those who ask for it need it
        except ModuleNotFoundError:
            raise ModuleNotFoundError("aiobotocore is not installed: pip install 'penstock[aio-sqs]'") from None
        async with get_session().create_client("sqs", region_name=region) as client:
            yield cls(client, queue_url, dlq_url, **settings)

    async def enqueue_tasks(
        self,
        entity_id: str | int,
        tasks: Iterable[Mapping[str, Any]],
        metadata: Mapping[str, Any] | None = None,
        *,
        run: object = None,
    ) -> Enqueued:
        """Enqueue tasks; see `TaskQueueHandler.enqueue_tasks`."""
        sent = tasks_to_send(entity_id, tasks, metadata, run=run, wall_ms=self._clock.wall_ms())
        enqueued = await self._run_script(scripts.enqueue(self.queue_url, sent), self.queue_url)
        logger.info("Enqueued %d/%d tasks for entity %s", enqueued, len(sent), entity_id)
        return enqueued

    async def get_queue_status(self) -> dict[str, int]:
        """Return `messages_available`, `messages_in_flight` and `messages_delayed`."""
        return await self._run_script(scripts.status(self.queue_url), self.queue_url)

    async def get_dlq_messages(self, max_messages: int = 10, *, hold: int = 0) -> list[dict[str, Any]]:
        """Return dead letters; see `TaskQueueHandler.get_dlq_messages`."""
        if not self.dlq_url:
            logger.warning("No DLQ configured")
            return []
        return await self._run_script(scripts.look(self.dlq_url, max_messages, hold, self._denial), self.dlq_url)

    async def redrive(self, *, rate: int | None = None) -> str:
        """Have SQS move all dead letters back, at most `rate` a second; return the handle of the move task."""
        dlq_url = self._dlq()
        return await self._run_script(scripts.redrive(dlq_url, rate), dlq_url)

    async def _run_script(self, script: Script[T], queue_url: str) -> T:
        """Run a script to its end."""
        try:
            step = next(script)
            while True:
                if isinstance(step, scripts.Pause):
                    await asyncio.sleep(step.seconds)
                    step = script.send(None)
                    continue
                try:
                    answer = await getattr(self.sqs_client, step.operation)(**step.parameters)
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
