"""What a client's call can raise: each problem of the job API as a class, and what can go wrong on the way to it."""

from __future__ import annotations

from penstock.domain.errors import PenstockError

__all__ = ["PenstockError"]


class ClientError(PenstockError):
    """A call did not do what was asked. All of this module's errors are such."""


class UrlInvalid(ClientError, ValueError):
    """The URL is none that `Penstock` understands."""


class Closed(ClientError):
    """The `Penstock` was closed, or its `async with` or `with` block has ended."""


class WrongThread(ClientError, RuntimeError):
    """`app.sync` was called where an event loop runs, which it would block. Use the async methods there."""


class WrongProcess(ClientError, RuntimeError):
    """A `memory:` store lives in the process that opened it; a forked child has no access to it."""


# -- on the way -----------------------------------------------------------------------------------


class TransportError(ClientError):
    """No complete answer came. The call may or may not have had its effect; the same call may be repeated."""


class ConnectionFailed(TransportError, ConnectionError):
    """No server could be reached, or the connection was lost before the answer was whole."""


class DeadlineExceeded(TransportError, TimeoutError):
    """The call's time was up."""


class AnswerInvalid(TransportError):
    """What answered does not speak the job API: the answer is no HTTP, no JSON, of another shape, or too large."""


# -- problems -------------------------------------------------------------------------------------
