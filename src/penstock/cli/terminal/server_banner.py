"""The banner of `penstock serve`: where the server is, what it holds, and who gets in."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from penstock.cli.holdings import Holdings
from penstock.cli.terminal.lines import facts
from penstock.cli.terminal.problems import problem
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Line, Span, harmless
from penstock.cli.terminal.values import counted, size
from penstock.client.urls import without_password
from penstock.server.config import ServerConfig
from penstock.store.port import StoreVersion


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A store as it was when it was opened."""

    url: str
    size_bytes: int | None = None
    """None if it is not a file, or if there was none."""
    new: bool = False
    version: StoreVersion | None = None
    holdings: Holdings | None = None


def banner(screen: Screen, config: ServerConfig, url: str, store: StoreFacts, *, version: str, took_s: float) -> None:
    """Write where the server is, what it holds and who gets in, and that it is ready."""
    head = [Span(f"Penstock {version}", "bold"), Span(" on "), Span(harmless(url), "bold")]
    opened = not config.guarded and config.socket is None and not config.on_loopback
    rows: list[tuple[str, Line]] = [("store", _store(store))]
    if store.holdings is not None:
        rows.append(("holds", _holds(store.holdings)))
    if config.socket is None:
        rows.append(
            ("SQS", [Span(f"--endpoint-url {harmless(url)}"), Span(f"  region {harmless(config.region)}", "dim")])
        )
    rows.append(("access", _access(config, opened=opened)))
    lines: list[list[Span]] = [head, [], *facts(screen, rows), []]
    if opened:
        port = urlsplit(url).port or config.port
        lines += problem(
            screen,
            "warning",
            f"Anyone who can reach port {port} can read and delete everything.",
            hint="add [[keys]] to a file and pass --config FILE, or drop --insecure",
        )
        lines.append([])
    lines.append([screen.signs.of("done"), Span(f" Ready in {took_s:.2f} s. Press Ctrl+C to stop.")])
    screen.write(lines)


def size_of(path: str) -> int | None:
    """Return how many bytes a SQLite store takes with its log; None if there is no such file."""
    try:
        whole = Path(path).stat().st_size
    except OSError:
        return None
    try:
        return whole + Path(f"{path}-wal").stat().st_size
    except OSError:
        return whole


def _store(store: StoreFacts) -> Line:
    about: list[str] = []
    if store.url.startswith(("postgresql:", "postgres:")):
        about.append("PostgreSQL" if store.version is None else harmless(store.version.database))
    elif store.url.startswith("memory:"):
        about.append("kept nowhere: it is gone when the server stops")
    elif store.new:
        about.append("new")
    elif store.size_bytes is not None:
        about.append(size(store.size_bytes))
    if store.version is not None and not store.new and not store.url.startswith("memory:"):
        about.append(f"schema {store.version.schema}")
    return [Span(harmless(without_password(store.url))), Span("  " + ", ".join(about) if about else "", "dim")]


def _holds(held: Holdings) -> Line:
    queues = [
        *([counted(held.sqs_queues, "SQS queue")] if held.sqs_queues else []),
        *([counted(held.job_queues, "job queue")] if held.job_queues else []),
    ]
    if not queues:
        return [Span("no queues yet")]
    return [Span(", ".join(queues)), Span(f"  {held.waiting:,} waiting, {held.dead:,} dead", "dim")]


def _access(config: ServerConfig, *, opened: bool) -> Line:
    if config.guarded:
        who = [
            *([counted(len(config.keys), "key")] if config.keys else []),
            *([counted(len(config.tokens), "token")] if config.tokens else []),
        ]
        return [Span(", ".join(who)), Span("  every request needs one", "dim")]
    if opened:
        return [Span("open: no keys set, reachable from other machines", "yellow")]
    if config.socket is not None:
        return [Span("no keys set"), Span("  only who may use the store's file can connect", "dim")]
    return [Span("no keys set"), Span("  only this machine can connect", "dim")]
