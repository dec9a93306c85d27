"""The start of a server as a person sees it: the banner once it is ready, or why it is not."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from penstock import __version__
from penstock.cli import STARTED_S
from penstock.cli.holdings import Holdings, count_holdings
from penstock.cli.neighbour import penstock_at
from penstock.cli.terminal.problems import did_you_mean, excerpt, problem
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.server_banner import StoreFacts, banner, size_of
from penstock.cli.terminal.suggestions import closest
from penstock.cli.terminal.text import Span, harmless
from penstock.domain.errors import PenstockError
from penstock.engine.engine import Engine
from penstock.server.config import PortInUse, ServerConfig, StartFailure
from penstock.server.config_file import UnknownSetting
from penstock.store.port import StoreVersion


class Starting:
    """One start: `look` at the store once it is open, then `announce` that the server is ready."""

    def __init__(self, screen: Screen, config: ServerConfig) -> None:
        self._screen = screen
        self._config = config
        self._shown = screen.terminal and config.log_format == "console"
        path = _file_of(config.store)
        self._new = path is not None and not Path(path).exists()
        self._held: Holdings | None = None
        self._version: StoreVersion | None = None

    async def look(self, engine: Engine) -> None:
        """Learn what the store is and what it holds, if that is shown to anybody."""
        if self._shown:
            # If it fails here, the server says what becomes of its store.
            with contextlib.suppress(PenstockError):
                self._version = await engine.version()
                self._held = await count_holdings(engine)

    def announce(self, url: str) -> None:
        """Say that the server is ready: to people with the banner, to programs with one line on stdout."""
        if self._shown:
            banner(
                self._screen,
                self._config,
                url,
                self._store(),
                version=__version__,
                took_s=time.perf_counter() - STARTED_S,
            )
        if not (self._shown and sys.stdout.isatty()):
            sys.stdout.write(f"penstock is ready at {url}\n")
            sys.stdout.flush()

    def _store(self) -> StoreFacts:
        path = _file_of(self._config.store)
        return StoreFacts(
            url=self._config.store,
            size_bytes=None if path is None else size_of(path),
            new=self._new,
            version=self._version,
            holdings=self._held,
        )


def start_failure(screen: Screen, failure: StartFailure) -> list[list[Span]]:
    """Say why a server does not start."""
    if isinstance(failure, UnknownSetting):
        return _unknown_setting(screen, failure)
    why, hint = [], failure.hint
    if isinstance(failure, PortInUse) and (version := penstock_at(failure.host, failure.port)):
        why = [f"penstock {version} answers there"]
        hint += ", or use the running server"
    return problem(screen, "refused" if failure.refused else "error", str(failure), why=why, hint=hint)


def _unknown_setting(screen: Screen, failure: UnknownSetting) -> list[list[Span]]:
    meant = closest(failure.name, failure.known)
    if not failure.excerpt:
        more = did_you_mean(meant) if meant else []
        return problem(screen, "error", [Span(harmless(str(failure))), *more])
    remark = [Span(" did you mean "), Span(meant, "bold"), Span("?")] if meant else []
    return [
        *problem(screen, "error", str(failure)),
        [],
        *excerpt(screen, failure.excerpt, failure.name, remark),
    ]


def _file_of(url: str) -> str | None:
    """Return the path of the file that a store is kept in."""
    scheme, _, rest = url.partition(":")
    if scheme != "sqlite":
        return None
    return str(Path(rest[2:] if rest.startswith("///") else rest).expanduser())
