"""`Penstock`: one object for the job API, wherever the jobs are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NoReturn, Self

from penstock.client.errors import NotTrusted, TransactionUnsupported, UrlInvalid
from penstock.client.loops import refuse_on_loop
from penstock.client.senders import PeerSenders, ProcessSenders
from penstock.client.tasks.app import TaskApp
from penstock.client.tokens import Token
from penstock.client.transport.dialing import CONNECT_S
from penstock.client.transport.peer import Peer
from penstock.client.urls import dialers, read_url
from penstock.client.verbs.caller import Caller as AsyncCaller

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from penstock.client.durations import Duration
    from penstock.client.lifespan import AsgiLifespan, Lifespan
    from penstock.client.senders import Senders
    from penstock.client.sync.caller import SyncSender
    from penstock.client.sync.face import SyncFace
    from penstock.client.verbs.caller import AsyncSender
    from penstock.client.worker.notices import Observer

TIMEOUT_S = 30.0
"""Within which time a call is answered, repeats included, unless the caller says otherwise."""


class Penstock(TaskApp):
    """Tasks and the job API, by URL. It opens what it needs on first use.

    | URL | what it talks to |
    |---|---|
    | `http://…`, `https://…`, `unix:/path.sock` | a server; several addresses of one service with commas between them |
    | `sqlite:jobs.db` | the process that owns the file, which is started where there is none |
    | `postgresql://…` | the database, by an engine in this process |
    | `memory:` | an engine in this process, which forgets everything when it ends |

    Async code uses `app.jobs`, `app.queues` and so on from any event loop; other code uses `app.sync.jobs` and so on
    from any thread. All may be used at once, and after a fork; only `memory:` stays with its process.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT_S,
        connect_timeout: float = CONNECT_S,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        owner: Literal["process", "thread"] = "process",
        start: bool = True,
    ) -> None:
        if owner not in {"process", "thread"}:
            raise ValueError(f'owner has to be "process" or "thread", not {owner!r}.')
        target = read_url(url)
        self._shown = target.shown

        def new_senders() -> Senders:
            if target.kind == "process":
                return ProcessSenders(target.url, connect_timeout)
            if target.kind == "server":
                ways = dialers(target.url, lambda: _tls(ca_file), connect_timeout)
                return PeerSenders(Peer(ways, Token(token, token_file), connect_timeout))
            from penstock.client.embedded.opening import owner_dialer  # noqa: PLC0415 - only who needs it loads it

            return PeerSenders(Peer([owner_dialer(target.url, owner=owner, start=start)], Token()))

        self._new_senders = new_senders
        self._own_senders = self._senders = new_senders()
        self._own_store = target.kind == "file" or target.url == "memory:"
        self._timeout_s = timeout
        self._sync: SyncFace | None = None
        super().__init__(AsyncCaller(self._open_async, timeout))

    @classmethod
    def embedded(
        cls,
        path: str | os.PathLike[str],
        *,
        owner: Literal["process", "thread"] = "process",
        start: bool = True,
        timeout: float = TIMEOUT_S,
    ) -> Self:
        """Share the SQLite file at `path` with other processes: the same as `sqlite:PATH`.

        With `owner="thread"` a thread of this process owns the file where no other process does; with `start=False`
        somebody else has to own it.
        """
        return cls(f"sqlite:{os.fspath(path)}", owner=owner, start=start, timeout=timeout)

    @classmethod
    def from_env(cls) -> Self:
        """Use `PENSTOCK_URL`, and as token `PENSTOCK_TOKEN` or what is in the file `PENSTOCK_TOKEN_FILE`."""
        url = os.environ.get("PENSTOCK_URL")
        if not url:
            raise UrlInvalid("The environment variable PENSTOCK_URL is not set.")
        token = os.environ.get("PENSTOCK_TOKEN") or None
        return cls(url, token=token, token_file=os.environ.get("PENSTOCK_TOKEN_FILE") or None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown!r})"

    @property
    def address(self) -> str:
        """Its URL as it may be shown: without a password."""
        return self._shown

    def look_after_store(self) -> None:
        """Have an engine in this process run what comes due by itself, as workers and servers do."""
        self._senders.look_after_store()

    def use_senders(self, senders: Senders) -> Senders:
        """Send all calls by other senders from now on, and return those before, which stay open: a test does this."""
        before, self._senders = self._senders, senders
        return before

    @property
    def is_borrowed(self) -> bool:
        """Whether its calls go elsewhere than to its URL: inside `app.testing()`."""
        return self._senders is not self._own_senders

    def lifespan(
        self,
        *,
        worker: bool = False,
        queues: Mapping[str, int] | None = None,
        grace: Duration = 25,
        name: str | None = None,
        inner: AsgiLifespan | None = None,
        startup_timeout: Duration = 5,
        observer: Observer | None = None,
    ) -> Lifespan:
        """Return the `lifespan=` of a FastAPI, Starlette or Litestar application: it closes this app at the end.

        With `worker=True` a `Worker` with these `queues`, `name`, `grace` and `observer` runs in the same process and
        on the same event loop. It heeds no signals: the web server stops it. `inner` is a lifespan of your own, which
        begins before the worker and ends after it. `startup_timeout` is how long the web server waits for the worker to
        be ready; a server that refuses the worker in that time stops the start.
        """
        from penstock.client.lifespan import Lifespan  # noqa: PLC0415 - only who needs it loads it

        return Lifespan(
            self,
            worker=worker,
            queues=queues,
            grace=grace,
            name=name,
            inner=inner,
            startup_timeout=startup_timeout,
            observer=observer,
        )

    def stages(self) -> bool:
        """Return whether calls with `tx` wait for a transaction; in `app.testing()` they are enqueued at once.

        Raises `TransactionUnsupported` where jobs are kept in a store that no transaction of the user's can reach.
        """
        if self._senders is not self._own_senders:
            return False
        if self._own_store:
            raise TransactionUnsupported(
                f"tx= enqueues in a transaction of the PostgreSQL database that Penstock keeps its jobs in, and "
                f"{self._shown} is none. docs/transactions.md shows an outbox, which works with any database."
            )
        return True

    def __reduce__(self) -> NoReturn:
        # It may hold a token, and always holds what belongs to this process.
        raise TypeError("A Penstock can be neither pickled nor copied. Make one from its URL where it is needed.")

    @property
    def sync(self) -> SyncFace:
        """The same verbs for code without an event loop. They raise `WrongThread` on a thread where one runs."""
        if self._sync is None:
            from penstock.client.sync.caller import Caller  # noqa: PLC0415 - only who needs it loads it
            from penstock.client.sync.face import SyncFace  # noqa: PLC0415

            self._sync = SyncFace(Caller(self._open_sync, self._timeout_s))
        return self._sync

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what sync code used, and an engine in this process. What an event loop used ends with the loop.

        A call of another thread that waits raises `Closed`.
        """
        self._senders.close()

    async def aclose(self) -> None:
        """Close everything that this event loop and sync code used. Calls that wait raise `Closed`."""
        await self._senders.aclose()

    async def close_for_now(self) -> None:
        """Close as `aclose` does; what is used after that is opened anew. Inside `app.testing()` nothing is closed."""
        if self.is_borrowed:
            return
        closing = self._senders
        self._own_senders = self._senders = self._new_senders()
        await closing.aclose()

    def _open_async(self) -> AsyncSender:
        return self._senders.open_async()

    def _open_sync(self) -> SyncSender:
        refuse_on_loop("app.sync", "the async method")
        return self._senders.open_sync()


def _tls(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Return what checks a server's certificate, against the system's authorities or those of a file."""
    import ssl  # noqa: PLC0415 - only who needs it loads it

    try:
        return ssl.create_default_context(cafile=None if ca_file is None else os.fspath(ca_file))
    except OSError as error:
        raise NotTrusted(f"The authorities in {ca_file} cannot be read: {error}.") from None
