"""Access: who makes a request, by their key, and whether policies let them do what it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.errors import AccessDenied, PenstockError, PolicyInvalid, QueueDoesNotExist
from penstock.domain.policy import Asked, Policy, Principal, Verdict, judge, parse_queue_policy
from penstock.domain.policy_actions import OWN_ACCOUNT_ONLY, SINGLES
from penstock.domain.queue import QueueName
from penstock.server.sqs_operations.call import Caller
from penstock.server.sqs_operations.moves import queue_of_arn
from penstock.wire.sqs.errors import AuthenticationMissing
from penstock.wire.sqs.move_handles import decode_move_handle
from penstock.wire.sqs.verification import SignatureVerifier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.domain.clock import Clock
    from penstock.domain.queue import Queue
    from penstock.engine.queues import Queues
    from penstock.server.sqs_operations.call import Call
    from penstock.wire.http import Request

ANONYMOUS = "anonymous"
"""How receivers are told of a sender who need not say who they are."""

_REPAIR = "SetQueueAttributes"
_MOVE = "StartMessageMoveTask"
_SEND = "SendMessage"
ALLOWED_REMEMBERED_MAX = 10_000
SIGNERS_REMEMBERED_MAX = 1_024


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a user of an account, and what that user may do. Its secret is never shown."""

    id: str
    secret: str
    account: str
    user: str
    policy: Policy

    def __repr__(self) -> str:
        return f"AccessKey({self.id!r}, account={self.account!r}, user={self.user!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id), ("account", self.account), ("user", self.user)]

    @property
    def principal(self) -> Principal:
        """Whom policies know by this key."""
        return Principal(account=self.account, user=self.user)


class Access:
    """Identifies callers by their keys, and permits them what their policies and those of the queues allow."""

    def __init__(
        self, keys: Iterable[AccessKey], queues: Queues, clock: Clock, *, region: str, secure_transport: bool
    ) -> None:
        self._keys = {key.id: key for key in keys}
        self._verifier = SignatureVerifier({key.id: key.secret for key in self._keys.values()})
        self._queues = queues
        self._clock = clock
        self._secure_transport = "true" if secure_transport else "false"
        # What users may do on queues without a policy, whatever the circumstances: it never changes.
        self._plainly_allowed: set[tuple[str, str, QueueName]] = set()
        self._signers: set[str] = set()
        # Who is not signed in has no account, so that a queue has to be named with its owner's.
        self._anonymous = Caller(identity="", account="", region=region, sender=ANONYMOUS)

    def identify(self, request: Request) -> Caller:
        """Tell who makes a request. One that is not signed is nobody's; one that is signed wrongly is refused."""
        try:
            scope = self._verifier.verify(request, self._clock.wall_ms())
        except AuthenticationMissing:
            return self._anonymous
        key = self._keys[scope.access_key]
        return Caller(identity=key.id, account=key.account, region=scope.region, sender=key.user)

    def recognise(self, head: Request) -> bool:
        """Return whether a request is signed by somebody known, as far as its head tells; refuse it if it is wrong."""
        # A client writes the same before its signatures all day long. What it signed is verified later.
        signer = head.headers.get("authorization", "").rpartition("Signature=")[0]
        if signer in self._signers:
            return True
        try:
            self._verifier.check_head(head, self._clock.wall_ms())
        except AuthenticationMissing:
            return False
        if signer:
            if len(self._signers) >= SIGNERS_REMEMBERED_MAX:
                self._signers.clear()
            self._signers.add(signer)
        return True

    async def permit(self, call: Call, operation: str, shape: Any) -> None:  # noqa: ANN401 - the operation's own shape
        """Return if the caller may do this; otherwise raise `AccessDenied`, or `AuthenticationMissing` for nobody.

        For a move without a destination, note in the call where messages may go.
        """
        for action, queue in self._needed(call, operation, shape):
            self._check(call.caller, action, queue, await self._policy_of(queue, action))
        if operation == _MOVE and not shape.destination_arn:
            call.destinations = await self._destinations(call.caller, queue_of_arn("SourceArn", shape.source_arn))

    def _needed(self, call: Call, operation: str, shape: Any) -> list[tuple[str, QueueName]]:  # noqa: ANN401 - as above
        """List the actions that an operation comes to, and on which queues."""
        caller = call.caller
        action = SINGLES.get(operation, operation)
        match operation:
            case "CreateQueue" | "GetQueueUrl" | "ListQueues":
                # All queues together are the one without a name.
                name = getattr(shape, "queue_name", None) or ""
                owner = getattr(shape, "queue_owner_account", None) or caller.account
                return [(action, QueueName(caller.region, owner, name))]
            case "ListMessageMoveTasks":
                return [(action, queue_of_arn("SourceArn", shape.source_arn))]
            case "CancelMessageMoveTask":
                handle = decode_move_handle(shape.task_handle)
                return [(action, queue_of_arn("SourceArn", handle.source_arn))]
            case "StartMessageMoveTask":
                # To move messages is to receive and delete them in one queue and to send them to another.
                source = queue_of_arn("SourceArn", shape.source_arn)
                needed = [(each, source) for each in (action, "ReceiveMessage", "DeleteMessage", "GetQueueAttributes")]
                if shape.destination_arn:
                    needed.append((_SEND, queue_of_arn("DestinationArn", shape.destination_arn)))
                return needed
            case _:
                return [(action, call.queue(shape.queue_url))]

    async def _destinations(self, caller: Caller, source: QueueName) -> list[QueueName]:
        """List the queues that messages of a dead-letter queue may be moved back to, by this caller's leave.

        Raises `AccessDenied` if one of those that name it as their dead-letter queue today is not among them. A message
        may have come from any other queue, too, that did so once.
        """
        permitted: list[QueueName] = []
        after: str | None = ""
        while after is not None:
            page = await self._queues.list_queues(source.region, source.account, after=after)
            for queue in page.queues:
                redrive = queue.attributes.redrive
                try:
                    self._check(caller, _SEND, queue.name, _policy_in(queue, _SEND))
                except (AccessDenied, AuthenticationMissing):
                    if redrive is not None and redrive.dead_letter_queue == source:
                        raise
                else:
                    permitted.append(queue.name)
            after = page.after
        return permitted

    def _check(self, caller: Caller, action: str, queue: QueueName, of_queue: Policy) -> None:
        plainly = (caller.identity, action, queue)
        if not of_queue.statements and plainly in self._plainly_allowed:
            return
        key = self._keys.get(caller.identity)
        principal = Principal() if key is None else key.principal
        asked = Asked(principal, f"sqs:{action}", queue.arn, self._facts(caller, principal))
        verdict = judge(asked, owner=queue.account, of_user=Policy() if key is None else key.policy, of_queue=of_queue)
        if verdict is Verdict.ALLOWED and caller.account != queue.account and action in OWN_ACCOUNT_ONLY:
            verdict = Verdict.NOT_ALLOWED_BY_QUEUE
        if verdict is not Verdict.ALLOWED:
            raise _refusal(asked, verdict)
        if key is not None and not key.policy.conditional and not of_queue.statements:
            if len(self._plainly_allowed) >= ALLOWED_REMEMBERED_MAX:
                self._plainly_allowed.clear()
            self._plainly_allowed.add(plainly)

    def _facts(self, caller: Caller, principal: Principal) -> dict[str, str]:
        facts = {"aws:securetransport": self._secure_transport, "aws:requestedregion": caller.region}
        if principal.known:
            facts["aws:principalaccount"] = principal.account
            facts["aws:principalarn"] = principal.arn
            facts["aws:username"] = principal.user
        return facts

    async def _policy_of(self, queue: QueueName, action: str) -> Policy:
        """Find a queue's policy. One that does not exist has none; that it does not exist is for others to say."""
        try:
            return _policy_in(await self._queues.find(queue), action)
        except QueueDoesNotExist:
            return Policy()


def _policy_in(queue: Queue, action: str) -> Policy:
    """Read a queue's policy. Raises `AccessDenied` if it cannot be enforced."""
    try:
        return parse_queue_policy(queue.attributes.policy)
    except PolicyInvalid as invalid:
        # Only an older version may have kept such a policy. Its denials are not known, so nothing is allowed.
        if action == _REPAIR:
            return Policy()
        raise AccessDenied(f"The policy of {queue.name.arn} cannot be enforced: {invalid.reason}") from None


def _refusal(asked: Asked, verdict: Verdict) -> PenstockError:
    """Say no: to nobody in particular, that they should sign; to somebody, what they may not do and why."""
    if not asked.principal.known:
        return AuthenticationMissing("Request is missing Authentication Token")
    # Amazon writes the action in small letters here.
    action = asked.action.lower()
    return AccessDenied(
        f"User: {asked.principal.arn} is not authorized to perform: {action} on resource: {asked.resource} "
        + verdict.value.format(action=action)
    )
