"""The SQS endpoint: whatever an SQS client sends, answered by the engine in the protocol that it came in."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.domain.errors import AccessDenied, PenstockError
from penstock.server.counters import UNKNOWN_OPERATION, RequestCounters
from penstock.server.sqs_operations.call import Call, Caller, Place
from penstock.server.sqs_operations.messages import MessageOperations
from penstock.server.sqs_operations.moves import MoveOperations
from penstock.server.sqs_operations.permissions import PermissionOperations
from penstock.server.sqs_operations.queues import QueueOperations
from penstock.wire.sqs.credentials import CREDENTIAL_MARK, credential_scope
from penstock.wire.sqs.errors import INTERNAL_FAILURE, sqs_error
from penstock.wire.sqs.json_protocol import CONTENT_TYPE, TARGET_HEADER, TARGET_PREFIX, JsonProtocol
from penstock.wire.sqs.query_protocol import QueryJsonProtocol, QueryProtocol

if TYPE_CHECKING:
    import msgspec

    from penstock.engine.engine import Engine
    from penstock.server.access import Access
    from penstock.server.fast_path import Reply
    from penstock.server.sqs_operations.call import Handler
    from penstock.wire.http import Request, Response
    from penstock.wire.sqs.protocol import WireProtocol

DEFAULT_REGION = "us-east-1"
DEFAULT_ACCOUNT = "000000000000"
_JSON = JsonProtocol()
_QUERY = QueryProtocol()
_QUERY_JSON = QueryJsonProtocol()
_CALLERS_REMEMBERED = 1_024
_CALLER_CHARACTERS_MAX = 256

_log = logging.getLogger(__name__)


class SqsEndpoint:
    """Answers every request, also those that make no sense; it never raises but for a cancelled one.

    With `access`, callers prove who they are and do what they may; without it the signature's word is taken for the
    region, and everybody shares one account. Queue URLs begin with `public_url`, or else with the host that the client
    used.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        region: str = DEFAULT_REGION,
        account: str = DEFAULT_ACCOUNT,
        scheme: str = "http",
        public_url: str | None = None,
        access: Access | None = None,
        counters: RequestCounters | None = None,
    ) -> None:
        self._account = account
        self._anonymous = Caller(identity="", account=account, region=region, sender=account)
        self._callers: dict[str, Caller] = {}
        self._access = access
        self._counters = counters or RequestCounters()
        self._identify = self._take_at_word if access is None else access.identify
        self._ids = engine.ids
        self._place = Place(region=region, scheme=scheme, public_url=public_url)
        messages = MessageOperations(engine.messages, engine.queues, engine.limits)
        # Who may do what is looked up in the store, which takes a coroutine.
        beginnings = messages.beginnings() if access is None else {}
        self._beginnings = {TARGET_PREFIX + name: beginning for name, beginning in beginnings.items()}
        self._handlers: dict[str, Handler] = {
            **QueueOperations(engine.queues).handlers(),
            **PermissionOperations(engine.queues).handlers(),
            **messages.handlers(),
            **MoveOperations(engine.moves, engine.queues, engine.limits).handlers(),
        }

    async def answer(self, request: Request) -> Response:
        """Do what a request asks for, and answer it."""
        started_s = perf_counter()
        protocol = _protocol_of(request)
        request_id = self._ids.new_id()
        name = UNKNOWN_OPERATION
        code = denial = ""
        try:
            caller = self._identify(request)
            operation, shape = protocol.decode(request)
            name = operation.name
            call = Call(request, caller, name, self._place, protocol is not _JSON)
            if self._access is not None:
                await self._access.permit(call, name, shape)
            result = await self._handlers[name](call, shape)
            response = protocol.answer(operation, result, request_id)
            response.undelivered = call.undelivered
        except Exception as error:  # noqa: BLE001 - the outermost edge: a bug of ours becomes a plain 500
            response, code = _refuse(protocol, error, request_id)
            denial = error.reason if isinstance(error, AccessDenied) else ""
        self._note(name, response.status, code, request_id, started_s, denial)
        return response

    def recognise(self, head: Request) -> bool:
        """Return whether a request says who makes it, before its body is there; raise if it says so wrongly."""
        return self._access is not None and self._access.recognise(head)

    def refuse(self, head: Request, error: PenstockError) -> Response:
        """Refuse a request without having seen its body."""
        started_s = perf_counter()
        request_id = self._ids.new_id()
        response, code = _refuse(_protocol_of(head), error, request_id)
        self._note(UNKNOWN_OPERATION, response.status, code, request_id, started_s)
        return response

    def begin(self, request: Request, reply: Reply) -> bool:
        """Begin to answer a request without a coroutine, which is a good part of what one message costs otherwise.

        False says that it is none of those where that can be done, and that nothing was: then `answer` is to be asked.
        """
        beginning = self._beginnings.get(request.headers.get(TARGET_HEADER, ""))
        if beginning is None:
            return False
        started_s = perf_counter()
        request_id = self._ids.new_id()

        def ended(result: msgspec.Struct | None, error: BaseException | None = None, /, *, again: bool = False) -> None:
            if again:
                reply(self.answer(request))
                return
            code = ""
            if error is None:
                response = _JSON.answer(operation, result, request_id)
                response.undelivered = call.undelivered
            else:
                response, code = _refuse(_JSON, error, request_id)
            self._note(operation.name, response.status, code, request_id, started_s)
            reply(response)

        try:
            caller = self._identify(request)
            operation, shape = _JSON.decode(request)
            call = Call(request, caller, operation.name, self._place, in_query=False)
            return beginning(call, shape, ended)
        except Exception:  # noqa: BLE001 - `answer` comes to the same, be it the caller's fault or a bug
            return False

    def _note(self, name: str, status: int, code: str, request_id: str, started_s: float, denial: str = "") -> None:
        """Count a request that was answered, and log it where that is wanted; with who may not do what, if denied."""
        duration_s = perf_counter() - started_s
        self._counters.count(name, status, code, duration_s)
        level = _level(status)
        if _log.isEnabledFor(level):
            told_of = {"request_id": request_id, "operation": name, "status": status, "code": code}
            if denial:
                told_of["reason"] = denial
            _log.log(level, "request", extra={**told_of, "duration_ms": round(duration_s * 1_000, 3)})

    def _take_at_word(self, request: Request) -> Caller:
        # A signature is new every time; what stands before it says who signs, and for which region.
        told = request.headers.get("authorization", "").partition(",")[0]
        caller = self._callers.get(told)
        if caller is not None:
            return caller
        scope = credential_scope(request)
        if scope is None:
            return self._anonymous
        caller = Caller(scope.access_key, self._account, scope.region, self._account)
        if CREDENTIAL_MARK in told and len(told) <= _CALLER_CHARACTERS_MAX:
            if len(self._callers) >= _CALLERS_REMEMBERED:
                self._callers.clear()
            self._callers[told] = caller
        return caller


def _refuse(protocol: WireProtocol, error: BaseException, request_id: str) -> tuple[Response, str]:
    """Make the answer to a request that failed, and tell its code."""
    if isinstance(error, PenstockError):
        told = sqs_error(error)
        return protocol.refuse(told, protocol.reason_of(error), request_id), told.code
    _log.error("Request %s failed", request_id, exc_info=error)
    reason = "An internal error occurred. Please try again."
    return protocol.refuse(INTERNAL_FAILURE, reason, request_id), INTERNAL_FAILURE.code


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
