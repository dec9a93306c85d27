"""`penstock lab down`: removes what `penstock lab up` made, and stops the server that it started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.failures import USAGE, Failure, show
from penstock.cli.lab.failures import check_names, failure_of
from penstock.cli.lab.place import AWS, Place, place_of
from penstock.cli.lab.stopping import say_stopped
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.values import counted


def down(
    *names: Annotated[str, Parameter(metavar="NAME")],
    endpoint: Annotated[str | None, Parameter(metavar="URL")] = None,
    tables: Annotated[str | None, Parameter(metavar="URL")] = None,
    region: str | None = None,
    project: str = "sqs-demo",
    profile: Annotated[str, Parameter(metavar="NAME", show_default=False)] = "",
    data: Annotated[Path, Parameter(metavar="DIR")] = Path("data/lab"),
    env: Annotated[Path, Parameter(metavar="FILE")] = Path(".env"),
) -> int:
    """Remove the queues and tables of scenarios, and stop the server that penstock lab up started.

    Parameters
    ----------
    names
        The scenarios. If you name none, all of them go, and so do the server and the file.
    endpoint
        An SQS endpoint. Without it, that of the server in --data, or of the file.
    tables
        Where the two tables are: sqlite:PATH or dynamodb:ENDPOINT. Without it, a file in --data.
    region
        The region of queues and tables. Without it, AWS_REGION.
    project
        What the names of queues and tables begin with.
    profile
        A profile of the AWS configuration.
    data
        The folder of the server that was started, and of the tables.
    env
        The file that penstock lab up wrote.
    """
    from penstock.lab.background_server import BackgroundServer
    from penstock.lab.endpoints import endpoint_of
    from penstock.lab.env_file import read
    from penstock.lab.scenarios import NAMES
    from penstock.lab.tables.sqlite import remove_file_if_empty

    screen = Screen(sys.stderr)
    background = BackgroundServer(data)
    try:
        check_names(names, NAMES)
        written = read(env)
        url = written.get("QUEUE_URL", "")
        running = background.running
        if endpoint is None:
            endpoint = running.url if running else (endpoint_of(url) or AWS) if url else None
        gone = running is None and background.recorded
        if endpoint is None or (gone and gone.url == endpoint):
            # Its queues are in a store that nobody serves; the next start finds them as they are.
            removed = []
        else:
            place = place_of(
                endpoint=endpoint,
                tables=tables,
                region=region or written.get("AWS_REGION"),
                profile=profile,
                data=data,
            )
            removed = _remove(place, names, project)
        stopped = None if names else background.stop()
        if not names:
            background.forget()
            remove_file_if_empty(data / "tables.db")
            if endpoint is not None and url.startswith(f"{endpoint}/"):
                env.unlink(missing_ok=True)
    except Failure as failure:
        return show(failure)
    except KeyboardInterrupt as reason:
        return say_stopped(reason)
    except Exception as error:  # noqa: BLE001 - the outermost edge
        return show(failure_of(error))
    said = f" {counted(len(removed), 'queue or table', 'queues and tables')} removed." if removed else " Nothing is up."
    screen.write([[screen.signs.of("done"), Span(said)]])
    if stopped is not None:
        screen.write([[Span("  "), Span("stopped", "dim"), Span(f"  {harmless(stopped.url)}, pid {stopped.pid}")]])
    return 0


def _remove(place: Place, names: Sequence[str], project: str) -> list[str]:
    from penstock.lab.provisioning import remove, wanted

    if place.endpoint == AWS:
        raise Failure("On AWS, Terraform removes them.", hint="make infra-down TARGET=aws", exit_code=USAGE)
    with place.clients() as (sqs, table_place):
        return remove(sqs, table_place, wanted(names), project=project)
