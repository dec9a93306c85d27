"""dlq-redrive: dead letters are moved back after the fix, and each has its effect once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.lab.checkers.evidence import number
from penstock.lab.environment import QueueSettings
from penstock.lab.knobs import Knob
from penstock.lab.payloads import facts_of, payload_of
from penstock.lab.producer import Draft
from penstock.lab.scenario import Difference, Scenario
from penstock.lab.stage import ScenarioFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.lab.checkers.evidence import Evidence
    from penstock.lab.knobs import Knobs
    from penstock.lab.stage import Stage

RECEIVES_MAX = 2
IDLE_S = 3
PEEK_S = 2
"""How long a look hides dead letters: they are back before they are moved."""
TASK_S_MAX = 600
FORMAT = "2026-02"
"""What the messages are written in, and the consumer does not know before the fix."""
NO_TASKS = frozenset({"UnsupportedOperation", "UnknownOperationException", "InvalidAction", "NotImplemented"})
BY_HAND = "This endpoint has no StartMessageMoveTask, so the lab moved the messages itself: receive, send, delete."


class DlqRedrive(Scenario):
    """A consumer that cannot read its messages, a fix, and a move from the dead-letter queue back."""

    name = "dlq-redrive"
    rule = "After the fix the dead-letter queue is empty, and each message has one effect."
    short = "after the fix the DLQ is empty"
    story = (
        "The consumer could not read the messages, so all of them became dead letters after two receives. The consumer "
        "was fixed, a message move task brought them back, and each was done once. Moved back before the fix, they "
        "only die again."
    )
    guide = (
        "A dead-letter queue is a waiting room, not a grave: look at a message, find the cause, fix the consumer, and "
        "only then move them back with StartMessageMoveTask. A redrive before the fix costs every message its receives "
        "again, and hides the first failure under the second. Limit the rate of the move if the service behind is "
        "weak, and keep messages long enough: for a standard queue the time in the first queue counts, too."
    )
    try_this = "Move more: `penstock lab run dlq-redrive --count 40`. All 40 die, come back and are done once."
    try_command = "penstock lab run dlq-redrive --count 40 --open"
    difference = Difference(
        name="REDRIVE",
        protected="after the fix",
        broken="before the fix",
        does="when dead letters are moved back",
        words=("moved back after the fix", "moved back before the fix"),
    )
    knobs = (
        Knob("count", 5, "messages sent", least=1, most=1_000),
        Knob("batch-size", 10, "messages in one call of the producer", least=1, most=10),
        Knob("visibility-timeout", 10, "seconds that a lease lasts", least=1, most=600),
    )

    def queue(self, knobs: Knobs, *, broken: bool) -> QueueSettings:  # noqa: ARG002 - both alike
        """Return how its queues are made."""
        return QueueSettings(visibility_s=knobs.whole("visibility-timeout"), receives_max=RECEIVES_MAX)

    def play(self, stage: Stage) -> None:
        """Let all messages die, fix the consumer, and move them back; or move them back first."""
        knobs = stage.knobs
        stage.produce(
            [
                Draft(body={"id": str(UUID(int=stage.seed << 64 | n)), "format": FORMAT})
                for n in range(1, knobs.whole("count") + 1)
            ],
            batch_size=knobs.whole("batch-size"),
        )
        self.fail(stage)
        dead = self.look(stage)
        for message in dead:
            stage.record("ok", "dead", queue=stage.environment.names.dlq, **facts(message))
        if stage.broken:
            self.move(stage, dead)
            self.fail(stage)
        stage.record("ok", "fix", what=f"the consumer reads format {FORMAT}")
        if not stage.broken:
            self.move(stage, dead)
        stage.wait(stage.consumer("B", IDLE_TIMEOUT_SECONDS=IDLE_S))

    def fail(self, stage: Stage) -> None:
        """Run a consumer that cannot read the messages, until none comes back any more."""
        patience_s = 2 * stage.knobs.whole("visibility-timeout") + 1
        stage.wait(stage.consumer("A", REJECT_PAYLOAD_MARKER=FORMAT, IDLE_TIMEOUT_SECONDS=patience_s))

    def look(self, stage: Stage) -> list[dict[str, Any]]:
        """Return what is in the dead-letter queue, and let it be visible again."""
        found: dict[str, dict[str, Any]] = {}
        while messages := stage.sqs.receive_message(
            QueueUrl=stage.environment.dlq_url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=PEEK_S,
            WaitTimeSeconds=0,
            MessageSystemAttributeNames=["All"],
        ).get("Messages"):
            found |= {message["MessageId"]: message for message in messages}
        stage.sleep(PEEK_S + 1)
        return list(found.values())

    def move(self, stage: Stage, dead: Iterable[dict[str, Any]]) -> None:
        """Move the dead letters back, and note which of them are gone from there."""
        sqs, source = stage.sqs, stage.environment.dlq_arn
        try:
            sqs.start_message_move_task(SourceArn=source)
        except sqs.exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "")).rpartition(".")[2]
            # A number stands for an answer that is no error of SQS: nobody there knows the call.
            if code not in NO_TASKS and not code.isdecimal():
                raise
            self.move_by_hand(stage)
            stage.differences.append(BY_HAND)
        else:
            self.wait_for_task(stage, source)
        still = {facts(message)["body_id"] for message in self.look(stage)}
        for message in dead:
            told = facts(message)
            if told["body_id"] not in still:
                stage.record("ok", "move", queue=stage.environment.names.queue, **told, what="back in the queue")

    def wait_for_task(self, stage: Stage, source: str) -> None:
        """Wait until the move task has completed; raises `ScenarioFailed` if it does not."""
        for _ in range(TASK_S_MAX):
            task = stage.sqs.list_message_move_tasks(SourceArn=source)["Results"][0]
            if task["Status"] == "COMPLETED":
                return
            if task["Status"] != "RUNNING":
                raise ScenarioFailed(f"The message move task is {task['Status']}: {task.get('FailureReason')}")
            stage.sleep(1)
        raise ScenarioFailed(f"The message move task has not completed within {TASK_S_MAX} s.")

    def move_by_hand(self, stage: Stage) -> None:
        """Move messages one by one. Sent first and deleted then, so that none is lost."""
        url = stage.environment.dlq_url
        while messages := stage.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                stage.sqs.send_message(QueueUrl=stage.environment.queue_url, MessageBody=message["Body"])
                stage.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def figures(self, seen: Evidence) -> tuple[str, ...]:
        """Count what was moved, and what is dead at the end."""
        dead = 0 if seen.dead is None else seen.dead.count
        calls = 0 if seen.ledger is None else len(seen.ledger)
        moved = len(seen.of("move", "ok"))
        return (f"{len(seen.sent()):,} sent", f"{moved:,} moved back", number(calls, "call"), f"{dead:,} dead")

    def found(self, seen: Evidence) -> str:
        """Return how many were moved."""
        return self.figures(seen)[1]


def facts(message: dict[str, Any]) -> dict[str, object]:
    """Return what events have of a message that the runner saw."""
    return facts_of(payload_of(message["Body"])) | {"message_id": message["MessageId"]}
