"""`penstock relay`: enqueues the jobs that an outbox in your database holds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from penstock import __version__
from penstock.cli.failures import INTERRUPTED, UNREACHABLE, USAGE, Failure, failure_of, show
from penstock.cli.terminal.colours import ColorChoice

if TYPE_CHECKING:
    from penstock.cli.terminal.relay import RelayTerminal
    from penstock.client.app import Penstock
    from penstock.client.transactions.relay import Relay

LogFormat = Literal["console", "logfmt", "json"]

_RELAY = Group.create_ordered("relay")
_LOGS = Group.create_ordered("logs")
_TRY = "penstock relay --database sqlite:shop.db --to http://127.0.0.1:9324"


def relay(  # noqa: PLR0913 - one for each flag
    *,
    database: Annotated[str | None, Parameter(metavar="URL", group=_RELAY)] = None,
    connect: Annotated[str | None, Parameter(metavar="MODULE:NAME", group=_RELAY)] = None,
    to: Annotated[str | None, Parameter(metavar="URL", group=_RELAY)] = None,
    token_file: Annotated[str | None, Parameter(metavar="FILE", group=_RELAY)] = None,
    ca_file: Annotated[str | None, Parameter(metavar="FILE", group=_RELAY)] = None,
    once: Annotated[bool, Parameter(group=_RELAY, negative="")] = False,
    interval: Annotated[str, Parameter(metavar="1s", group=_RELAY)] = "1s",
    batch: Annotated[int, Parameter(metavar="N", group=_RELAY)] = 500,
    status: Annotated[bool, Parameter(group=_LOGS)] = True,
    verbose: Annotated[bool, Parameter(alias="-v", group=_LOGS, negative="")] = False,
    log_format: Annotated[LogFormat, Parameter(metavar="KIND", group=_LOGS)] = "console",
    color: Annotated[ColorChoice, Parameter(metavar="WHEN", group=_LOGS)] = "auto",
) -> int:
    """Enqueue the jobs that an outbox in your database holds, until you stop it.

    Parameters
    ----------
    database
        Your database, with the table penstock_outbox: postgresql://HOST/NAME or sqlite:PATH. By default
        PENSTOCK_OUTBOX.
    connect
        For any other database: a function that returns a DB-API connection, as shop.db:connect.
    to
        Server to enqueue to. By default PENSTOCK_URL.
    token_file
        File with the token for the server. By default PENSTOCK_TOKEN_FILE or PENSTOCK_TOKEN.
    ca_file
        File with the authorities that the server's certificate is checked against.
    once
        Enqueue what is there and end. Exit code 1 says that some jobs still wait.
    interval
        How often to look for jobs where the database does not notify.
    batch
        Most jobs in one request, up to 500.
    status
        Hide the live line at the foot of the terminal.
    verbose
        Log each batch.
    log_format
        console, logfmt or json. Where there is no terminal, console is logfmt. Logs go to stderr.
    color
        auto, always or never. With auto, colours are used in a terminal unless NO_COLOR is set.
    """
    from penstock.client.durations import seconds
    from penstock.domain.errors import PenstockError

    address = to or os.environ.get("PENSTOCK_URL") or ""
    try:
        app = _app(address, token_file, ca_file)
        if database is None and connect is None:
            database = os.environ.get("PENSTOCK_OUTBOX") or None
        made = _relay(app, database, connect, interval, batch)
        terminal = _terminal(made, seconds(interval), batch, (status, verbose, log_format, color))
        return asyncio.run(_run(made, terminal, once=once))
    except Failure as failure:
        return show(failure, color)
    except PenstockError as error:
        return show(_failure(error, address), color)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _run(made: Relay, terminal: RelayTerminal, *, once: bool) -> int:
    """Run it until it ends or is stopped. A second signal ends it at once: what it has claimed is free again soon."""
    running = asyncio.ensure_future(made.drain() if once else made.run())
    signals = 0

    def stop(number: signal.Signals) -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            made.stop(number.name)
        else:
            running.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    made.observer = terminal
    terminal.banner()
    terminal.watch(made.status)
    try:
        left = await running
    except asyncio.CancelledError:
        return INTERRUPTED
    finally:
        terminal.close()
        await made.app.aclose()
    return 1 if once and left else 0


def _app(address: str, token_file: str | None, ca_file: str | None) -> Penstock:
    from penstock.client.app import Penstock
    from penstock.client.errors import UrlInvalid

    if not address:
        raise Failure("No server is named: neither --to nor PENSTOCK_URL.", hint=_TRY, exit_code=USAGE)
    token = None if token_file else os.environ.get("PENSTOCK_TOKEN") or None
    given = token_file or (None if token else os.environ.get("PENSTOCK_TOKEN_FILE") or None)
    try:
        return Penstock(address, token=token, token_file=given, ca_file=ca_file)
    except UrlInvalid as error:
        raise Failure(f"--to is no URL of a server. {error}", exit_code=USAGE) from None


def _relay(app: Penstock, database: str | None, connect: str | None, interval: str, batch: int) -> Relay:
    from penstock.cli.worker.settings import read_count, read_duration
    from penstock.client.errors import RelayFailed
    from penstock.client.transactions.relay import BATCH_MAX, Relay

    if (database is None) is (connect is None):
        what = "Give either --database or --connect, not both." if database else "No database is named."
        raise Failure(what, hint=_TRY, exit_code=USAGE)
    read_count(batch, "--batch", BATCH_MAX)
    interval_s = read_duration(interval, "--interval")
    function = None if connect is None else _function(connect)
    try:
        return Relay(app, database, connect=function, interval=interval_s, batch=batch)
    except RelayFailed as error:
        raise Failure(str(error), hint=_TRY, exit_code=USAGE) from None


def _function(target: str) -> Callable[[], Any]:
    from importlib import import_module

    module_name, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise Failure(f"--connect is MODULE:FUNCTION, such as shop.db:connect, not {target}.", exit_code=USAGE)
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises while it is imported
        raise Failure(f"Cannot import {module_name}.", why=[f"{type(error).__name__}: {error}"]) from None
    found: Callable[[], Any] | None = getattr(module, name, None)
    if not callable(found):
        raise Failure(f"{module_name} has no function {name}.")
    return found


def _terminal(
    made: Relay, interval_s: float, batch: int, looks: tuple[bool, bool, LogFormat, ColorChoice]
) -> RelayTerminal:
    from penstock.cli.terminal.relay import RelayFacts, RelayTerminal

    status, verbose, log_format, color = looks
    about = RelayFacts(
        version=__version__,
        address=made.app.address,
        database=made.database.shown,
        batch=batch,
        interval_s=interval_s,
    )
    return RelayTerminal(about, sys.stderr, color=color, log_format=log_format, verbose=verbose, show_status=status)


def _failure(error: Exception, address: str) -> Failure:
    from penstock.client.errors import DatabaseUnreachable, RelayFailed

    if isinstance(error, DatabaseUnreachable):
        return Failure(str(error), exit_code=UNREACHABLE)
    return Failure(str(error)) if isinstance(error, RelayFailed) else failure_of(error, address)
