"""`penstock lab up`: makes the queues and tables of the scenarios, on a server that it starts if there is none."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Self

from cyclopts import Parameter

from penstock.cli.failures import USAGE, Failure, show
from penstock.cli.lab.failures import check_names, failure_of
from penstock.cli.lab.numbers import Whole
from penstock.cli.lab.place import AWS, Place, checked_endpoint, checked_tables
from penstock.cli.lab.stopping import say_stopped, stoppable
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.values import counted

PORT, PORT_MAX = 9324, 65_535
_HOST = "127.0.0.1"
_REUSE_S, _REUSE_MARGIN_S = 60, 5
"""How long SQS refuses the name of a deleted queue, and how much later we give up."""
_PAUSE_S = 0.5


def up(
    *names: Annotated[str, Parameter(metavar="NAME")],
    endpoint: Annotated[str | None, Parameter(metavar="URL")] = None,
    tables: Annotated[str | None, Parameter(metavar="URL")] = None,
    port: Annotated[Whole, Parameter(metavar="N")] = PORT,
    region: str = "us-west-1",
    project: str = "sqs-demo",
    profile: Annotated[str, Parameter(metavar="NAME", show_default=False)] = "",
    data: Annotated[Path, Parameter(metavar="DIR")] = Path("data/lab"),
    env: Annotated[Path, Parameter(metavar="FILE")] = Path(".env"),
) -> int:
    """Make the queues and tables of scenarios, and write the file that the producer and the consumer read.

    Parameters
    ----------
    names
        The scenarios; all of them if you name none.
    endpoint
        An SQS endpoint. Without it, the server on --port, which is started if there is none.
    tables
        Where the two tables are: sqlite:PATH or dynamodb:ENDPOINT. Without it, a file in --data.
    port
        The port of this machine that the server is on; 0 starts one on a free port.
    region
        The region of queues and tables.
    project
        What the names of queues and tables begin with.
    profile
        A profile of the AWS configuration.
    data
        The folder of the server that is started, and of the tables.
    env
        The file to write. It is about the scenario happy, or the first that you name.
    """
    from penstock.lab import env_file
    from penstock.lab.provisioning import environment_of, provision, wanted
    from penstock.lab.scenarios import NAMES

    screen = Screen(sys.stderr)
    try:
        check_names(names, NAMES)
        given = _endpoint(endpoint, port)
        where = checked_tables(tables, given or "", data)
        env_file.check(env)
        with stoppable(), _Server(given, port, region, data) as server:
            place = Place(endpoint=server.url, tables=where, region=region, profile=profile)
            with place.clients() as (sqs, table_place):
                wait = _NamesAreFree(screen)
                provided = provision(sqs, table_place, wanted(names), project=project, wait=wait)
            env_file.write(env, environment_of(provided[0]))
    except Failure as failure:
        return show(failure)
    except KeyboardInterrupt as reason:
        return say_stopped(reason)
    except Exception as error:  # noqa: BLE001 - the outermost edge
        return show(failure_of(error))
    scenarios = len({one.scenario for one in provided})
    done = f" The queues and tables of {counted(scenarios, 'scenario')} are there."
    screen.write(
        [
            [screen.signs.of("done"), Span(done)],
            [Span("  "), Span("server", "dim"), Span(f"  {harmless(server.said)}")],
            [Span("  "), Span("tables", "dim"), Span(f"  {harmless(where)}")],
            [Span("  "), Span("file", "dim"), Span(f"    {harmless(str(env))}  about {provided[0].scenario}")],
            [Span("  "), Span("try", "dim"), Span("     penstock lab produce --n 25 --rate 5")],
        ]
    )
    return 0


def _endpoint(given: str | None, port: int) -> str | None:
    if given == AWS:
        raise Failure("On AWS, Terraform makes them.", hint="make infra-up TARGET=aws", exit_code=USAGE)
    if not 0 <= port <= PORT_MAX:
        raise Failure(f"--port must be 0 to {PORT_MAX}, not {port}.", exit_code=USAGE)
    return None if given is None else checked_endpoint(given)


class _NamesAreFree:
    """Waits until SQS takes the names of deleted queues again, and says so once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._until_s: float | None = None

    def __call__(self) -> bool:
        """Wait a little; False if it has been long enough."""
        if self._until_s is None:
            said = f"Waiting for up to {_REUSE_S} s: queues of these names were deleted less than {_REUSE_S} s ago."
            self._screen.write([[Span(said)]])
            self._until_s = time.monotonic() + _REUSE_S + _REUSE_MARGIN_S
        if time.monotonic() >= self._until_s:
            return False
        time.sleep(_PAUSE_S)
        return True


class _Server:
    """The server for the length of a block: one that is started here is stopped again if the block fails."""

    def __init__(self, endpoint: str | None, port: int, region: str, data: Path) -> None:
        from penstock.lab.background_server import BackgroundServer

        self.url = endpoint or ""
        self.said = self.url
        """Which it is, for people."""
        self._port = port
        self._region = region
        self._background = BackgroundServer(data)
        self._started = False

    def __enter__(self) -> Self:
        from penstock.cli.neighbour import penstock_at
        from penstock.lab.background_server import NotStarted

        if self.url:
            return self
        if running := self._background.running:
            self.url = running.url
            self.said = f"{running.url}, pid {running.pid}"
        elif self._port and (version := penstock_at(_HOST, self._port)):
            self.url = f"http://{_HOST}:{self._port}"
            self.said = f"{self.url}, penstock {version} that ran already"
        else:
            try:
                started = self._background.start(port=self._port, region=self._region)
            except NotStarted as error:
                hint = "penstock lab up --port 0"
                raise Failure("The server did not start.", why=str(error).splitlines(), hint=hint) from None
            self._started = True
            self.url = started.url
            self.said = f"{started.url}, pid {started.pid}, started"
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._started:
            self._background.stop()
            self._background.forget()
