"""A server in a thread of the test's process, with everything that a test does to it: ask, move its clock, stop it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import uvloop

from penstock.domain.clock import ManualClock
from penstock.server.config import ServerConfig
from penstock.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Generator

START_S_MAX = 30.0
STOP_S_MAX = 15.0
"""More than a server that stops gives its clients to take their answers."""
ADVANCE_S_MAX = 60.0


class ServerClock:
    """The clock of a running server. Time stands still there until a test moves it."""

    def __init__(self, clock: ManualClock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop

    def now_ms(self) -> int:
        """Tell the present instant of the server."""
        return self._clock.now_ms()

    def advance(self, *, seconds: float = 0, ms: int = 0) -> None:
        """Move time forward. Returns once all that came due on the way was set going on the server.

        To be called from any thread but the server's own. Raises `ValueError` for a step back.
        """
        if self._loop.is_closed():
            raise RuntimeError("The server has stopped, and its clock with it.")
        advancing = asyncio.run_coroutine_threadsafe(self._clock.advance(seconds=seconds, ms=ms), self._loop)
        advancing.result(ADVANCE_S_MAX)


class RunningServer:
    """A server that takes requests at `url`, on loopback. Made by `serve`."""

    def __init__(self, url: str, region: str, clock: ServerClock | None) -> None:
        self.url = url
        self.region = region
        self._clock = clock

    @property
    def clock(self) -> ServerClock:
        """The clock of the server, if that is a manual one."""
        if self._clock is None:
            raise RuntimeError("This server runs on the system's clock, which nobody can move.")
        return self._clock

    @property
    def client_settings(self) -> dict[str, str]:
        """What boto3, aiobotocore and their like are to be given to make clients of this server."""
        return {
            "endpoint_url": self.url,
            "region_name": self.region,
            "aws_access_key_id": "any",
            "aws_secret_access_key": "any",
        }

    def sqs_client(self, **settings: Any) -> Any:  # noqa: ANN401 # boto3 has no types for its clients.
        """Make a boto3 client of this server, with further settings as boto3 takes them; closing it is the caller's.

        Raises `ModuleNotFoundError` where boto3 is not installed.
        """
        import boto3  # noqa: PLC0415 # Only those who ask for it need it.
        from botocore.config import Config  # noqa: PLC0415 # As above.

        # A proxy that the environment names does not lead back to this machine's loopback.
        direct = Config(proxies={})
        given = settings.pop("config", None)
        config = direct if given is None else direct.merge(given)
        return boto3.session.Session().client("sqs", config=config, **{**self.client_settings, **settings})


@contextlib.contextmanager
def serve(config: ServerConfig | None = None) -> Generator[RunningServer]:
    """Run a server in a thread of this process, and stop it in the end.

    Unless told otherwise it listens on a free port of loopback, keeps its messages in memory, and has a manual clock,
    which starts at the present. What the server raises, at its start or later, is raised here.
    """
    config = config or ServerConfig(port=0, store="memory:", clock="manual")
    thread = _ServerThread(config)
    thread.start()
    try:
        yield thread.wait_until_ready()
    finally:
        thread.stop()


class _ServerThread(threading.Thread):
    """Runs one service on an event loop of its own."""

    def __init__(self, config: ServerConfig) -> None:
        # A daemon: a test run that is interrupted must be able to end.
        super().__init__(name="penstock-server", daemon=True)
        self._config = config
        self._service: Service | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._url: str | None = None
        self._settled = threading.Event()
        """Set once the server takes requests, or never will."""
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                self._service = Service(self._config, self._ready)
                runner.run(self._service.run())
        except BaseException as error:  # noqa: BLE001 # It is raised in the thread that started this one.
            self._failure = error
        finally:
            self._settled.set()

    def _ready(self, url: str) -> None:
        self._url = url
        self._settled.set()

    def wait_until_ready(self) -> RunningServer:
        """Return once the server takes requests, or raise what kept it from that."""
        if not self._settled.wait(START_S_MAX):
            raise TimeoutError(f"The server has not started within {START_S_MAX:g} seconds.")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        assert self._url is not None
        assert self._loop is not None
        assert self._service is not None
        clock = self._service.clock
        moved_by_hand = ServerClock(clock, self._loop) if isinstance(clock, ManualClock) else None
        return RunningServer(self._url, self._config.region, moved_by_hand)

    def stop(self) -> None:
        """Stop the server, wait until it has, and raise what it failed with meanwhile."""
        if self._loop is not None and self._service is not None:
            # If it has stopped by itself, its loop is closed already.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._service.stop)
        self.join(STOP_S_MAX)
        if self.is_alive():
            raise TimeoutError(f"The server has not stopped within {STOP_S_MAX:g} seconds.")
        if self._failure is not None:
            raise self._failure
