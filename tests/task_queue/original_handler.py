"""The handler that `TaskQueueHandler` replaces, word for word: what it promises, ours has to keep."""

# ruff: noqa: ANN001, ANN003, ANN204, BLE001, F401, G004, I001, RUF013, TID251, TRY400, UP017, UP035
# mypy: ignore-errors
# fmt: off
import boto3
import json
import logging
from datetime import datetime, timezone
from typing import Any, Callable, Awaitable

logger = logging.getLogger(__name__)


class TaskQueueHandler:
    """SQS FIFO queue handler for fine-grained task distribution.

    Uses MessageGroupId for parallel processing across tasks and
    MessageDeduplicationId for exactly-once delivery.
    """

    def __init__(self, sqs_client, queue_url: str, dlq_url: str = None):
        if not sqs_client:
            raise ValueError("SQS client is required")
        if not queue_url:
            raise ValueError("Queue URL is required")

        self.sqs_client = sqs_client
        self.queue_url = queue_url
        self.dlq_url = dlq_url
        self.visibility_timeout = 900  # 15 minutes for long-running tasks

    def enqueue_tasks(self, entity_id: str, tasks: list[dict], metadata: dict) -> int:
        """Enqueue multiple tasks for parallel processing.

        Args:
            entity_id: Parent entity ID (e.g., doc_id, order_id).
            tasks: List of task dicts, each with at least a "name" key.
            metadata: Shared metadata for all tasks (e.g., organization, tenant).

        Returns:
            Number of tasks successfully enqueued.

        Raises:
            ClientError: If SQS send_message fails.
        """
        timestamp = datetime.now(timezone.utc).isoformat()
        enqueued = 0

        for task in tasks:
            task_name = task["name"]
            message_body = {
                "entity_id": entity_id,
                "task_name": task_name,
                "task_config": task.get("config", {}),
                "metadata": metadata,
                "timestamp": timestamp,
                "retry_count": 0,
                "total_tasks": len(tasks),
            }

            self.sqs_client.send_message(
                QueueUrl=self.queue_url,
                MessageBody=json.dumps(message_body),
                MessageGroupId=f"{entity_id}-{task_name}",
                MessageDeduplicationId=f"{entity_id}-{task_name}-{timestamp}",
                MessageAttributes={
                    "entity_id": {"StringValue": entity_id, "DataType": "String"},
                    "task_name": {"StringValue": task_name, "DataType": "String"},
                },
            )
            enqueued += 1

        logger.info(f"Enqueued {enqueued}/{len(tasks)} tasks for entity {entity_id}")
        return enqueued

    async def process_one(
        self,
        callback: Callable[..., Awaitable[Any]],
        **callback_kwargs,
    ) -> dict | None:
        """Receive and process a single task from the queue.

        Args:
            callback: Async function to process the task. Receives
                entity_id, task_name, task_config, metadata as kwargs.
            **callback_kwargs: Additional kwargs passed to callback.

        Returns:
            Result dict with status ("completed" or "failed"), or None if queue is empty.
        """
        response = self.sqs_client.receive_message(
            QueueUrl=self.queue_url,
            MaxNumberOfMessages=1,
            WaitTimeSeconds=5,                           # Long polling
            VisibilityTimeout=self.visibility_timeout,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        )

        messages = response.get("Messages", [])
        if not messages:
            return None

        message = messages[0]
        receipt_handle = message["ReceiptHandle"]
        body = json.loads(message["Body"])

        entity_id = body["entity_id"]
        task_name = body["task_name"]

        try:
            result = await callback(
                entity_id=entity_id,
                task_name=task_name,
                task_config=body.get("task_config", {}),
                metadata=body.get("metadata", {}),
                **callback_kwargs,
            )

            # Delete only on success — failure returns message to queue
            self.sqs_client.delete_message(
                QueueUrl=self.queue_url,
                ReceiptHandle=receipt_handle,
            )

            return {
                "entity_id": entity_id,
                "task_name": task_name,
                "result": result,
                "status": "completed",
            }

        except Exception as e:
            logger.error(f"Task {task_name} failed for {entity_id}: {e}")
            # Message returns to queue after visibility timeout for automatic retry
            return {
                "entity_id": entity_id,
                "task_name": task_name,
                "error": str(e),
                "status": "failed",
            }

    def get_queue_status(self) -> dict:
        """Get current queue metrics for monitoring."""
        attrs = self.sqs_client.get_queue_attributes(
            QueueUrl=self.queue_url,
            AttributeNames=["All"],
        )["Attributes"]

        return {
            "messages_available": int(attrs.get("ApproximateNumberOfMessages", 0)),
            "messages_in_flight": int(attrs.get("ApproximateNumberOfMessagesNotVisible", 0)),
            "messages_delayed": int(attrs.get("ApproximateNumberOfMessagesDelayed", 0)),
        }

    def get_dlq_messages(self, max_messages: int = 10) -> list[dict]:
        """Retrieve failed messages from DLQ for inspection.

        Messages are received with a short visibility timeout (30s) for
        inspection without permanent consumption.
        """
        if not self.dlq_url:
            logger.warning("No DLQ configured")
            return []

        response = self.sqs_client.receive_message(
            QueueUrl=self.dlq_url,
            MaxNumberOfMessages=max_messages,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
            VisibilityTimeout=30,
        )

        results = []
        for msg in response.get("Messages", []):
            body = json.loads(msg["Body"])
            results.append({
                "entity_id": body.get("entity_id"),
                "task_name": body.get("task_name"),
                "retry_count": body.get("retry_count", 0),
                "timestamp": body.get("timestamp"),
                "receipt_handle": msg["ReceiptHandle"],
            })
        return results
