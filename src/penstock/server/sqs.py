"""The SQS endpoint: whatever an SQS client sends, answered by the broker in the protocol that it came in."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.domain.errors import PenstockError
from penstock.domain.ids import RandomIds
from penstock.domain.limits import Limits
from penstock.server.counters import UNKNOWN_OPERATION, RequestCounters
from penstock.server.sqs_operations.call import Call, Caller, Place
from penstock.server.sqs_operations.messages import MessageOperations
from penstock.server.sqs_operations.moves import MoveOperations
from penstock.server.sqs_operations.permissions import PermissionOperations
from penstock.server.sqs_operations.queues import QueueOperations
from penstock.wire.sqs.credentials import credential_scope
from penstock.wire.sqs.errors import INTERNAL_FAILURE, sqs_error
from penstock.wire.sqs.json_protocol import CONTENT_TYPE, TARGET_HEADER, JsonProtocol
from penstock.wire.sqs.query_protocol import QueryJsonProtocol, QueryProtocol

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.domain.ids import IdSource
    from penstock.server.access import Access
    from penstock.server.sqs_operations.call import Handler
    from penstock.wire.http import Request, Response
    from penstock.wire.sqs.protocol import WireProtocol

DEFAULT_REGION = "us-east-1"
DEFAULT_ACCOUNT = "000000000000"
_JSON = JsonProtocol()
_QUERY = QueryProtocol()
_QUERY_JSON = QueryJsonProtocol()

_log = logging.getLogger(__name__)


class SqsEndpoint:
    """Answers every request, also those that make no sense; it never raises but for a cancelled one.

    With `access`, callers prove who they are and do what they may; without it the signature's word is taken for the
    region, and everybody shares one account. Queue URLs begin with `public_url`, or else with the host that the client
    used.
    """

    def __init__(  # noqa: PLR0913 - each is a part of its own, and they are put together in one place
        self,
        broker: Broker,
        *,
        region: str = DEFAULT_REGION,
        account: str = DEFAULT_ACCOUNT,
        scheme: str = "http",
        public_url: str | None = None,
        ids: IdSource | None = None,
        limits: Limits | None = None,
        access: Access | None = None,
        counters: RequestCounters | None = None,
    ) -> None:
        limits = limits or Limits()
        self._account = account
        self._anonymous = Caller(identity="", account=account, region=region, sender=account)
        self._access = access
        self._counters = counters or RequestCounters()
        self._identify = self._take_at_word if access is None else access.identify
        self._ids = ids or RandomIds()
        self._place = Place(region=region, scheme=scheme, public_url=public_url)
        self._handlers: dict[str, Handler] = {
            **QueueOperations(broker.queues).handlers(),
            **PermissionOperations(broker.queues).handlers(),
            **MessageOperations(broker.messages, broker.queues, limits).handlers(),
            **MoveOperations(broker.moves, broker.queues, limits).handlers(),
        }

    async def answer(self, request: Request) -> Response:
        """Do what a request asks for, and answer it."""
        started_s = perf_counter()
        protocol = _protocol_of(request)
        request_id = self._ids.new_id()
        name = UNKNOWN_OPERATION
        code = ""
        try:
            caller = self._identify(request)
            operation, shape = protocol.decode(request)
            name = operation.name
            self._counters.note_place(caller.region, caller.account)
            call = Call(request, caller, name, self._place, in_query=protocol is not _JSON)
            if self._access is not None:
                await self._access.permit(call, name, shape)
            result = await self._handlers[name](call, shape)
            response = protocol.answer(operation, result, request_id)
            response.undelivered = call.undelivered
        except PenstockError as error:
            told = sqs_error(error)
            code = told.code
            response = protocol.refuse(told, protocol.reason_of(error), request_id)
        except Exception:  # noqa: BLE001 - the outermost edge: a bug of ours becomes a plain 500
            _log.exception("Request %s failed", request_id)
            code = INTERNAL_FAILURE.code
            response = protocol.refuse(INTERNAL_FAILURE, "An internal error occurred. Please try again.", request_id)
        duration_s = perf_counter() - started_s
        self._counters.count(name, response.status, code, duration_s)
        level = _level(response.status)
        if _log.isEnabledFor(level):
            told_of = {"request_id": request_id, "operation": name, "status": response.status, "code": code}
            _log.log(level, "request", extra={**told_of, "duration_ms": round(duration_s * 1_000, 3)})
        return response

    def _take_at_word(self, request: Request) -> Caller:
        scope = credential_scope(request)
        if scope is None:
            return self._anonymous
        return Caller(scope.access_key, self._account, scope.region, self._account)


def _protocol_of(request: Request) -> WireProtocol:
    """Tell the protocol of a request, and so of its answer."""
    headers = request.headers
    if TARGET_HEADER in headers or headers.get("content-type", "").startswith(CONTENT_TYPE):
        return _JSON
    return _QUERY_JSON if headers.get("accept", "").startswith("application/json") else _QUERY


def _level(status: int) -> int:
    """Rank a request: those that failed by our fault, those that were turned away, and all others."""
    if status < 403:
        return logging.DEBUG
    if status >= 500:
        return logging.WARNING
    return logging.INFO if status == 403 else logging.DEBUG
