"""`penstock lab validate`: checks that the queues and tables of the scenarios are there and as they must be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.failures import Failure, show
from penstock.cli.lab.failures import NOT_FOUND, check_names, failure_of
from penstock.cli.lab.place import AWS, NO_TABLES, place_of
from penstock.cli.lab.stopping import say_stopped
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.values import counted

if TYPE_CHECKING:
    from penstock.lab.validate import Fault

_SHOWN_MAX = 10
"""How many faults a terminal gets, unless there is only one more."""


def validate(
    *names: Annotated[str, Parameter(metavar="NAME")],
    endpoint: Annotated[str | None, Parameter(metavar="URL")] = None,
    tables: Annotated[str | None, Parameter(metavar="URL")] = None,
    region: str | None = None,
    project: str = "sqs-demo",
    profile: Annotated[str, Parameter(metavar="NAME", show_default=False)] = "",
    data: Annotated[Path, Parameter(metavar="DIR")] = Path("data/lab"),
) -> int:
    """Check the queues and tables of scenarios, and list all that is wrong with them.

    Parameters
    ----------
    names
        The scenarios; all of them if you name none.
    endpoint
        An SQS endpoint, or aws. Without it, that of QUEUE_URL, of .env, or the server that penstock lab up started.
    tables
        sqlite:PATH, dynamodb: or dynamodb:ENDPOINT; none leaves the tables out. Without it, DynamoDB on AWS, and
        elsewhere a file in --data.
    region
        The region of queues and tables. Without it, AWS_REGION, else us-west-1.
    project
        What the names of queues and tables begin with.
    profile
        A profile of the AWS configuration.
    data
        The folder of penstock lab up.
    """
    from penstock.lab.endpoints import where
    from penstock.lab.provisioning import wanted
    from penstock.lab.scenarios import NAMES
    from penstock.lab.validate import validate as check

    try:
        check_names(names, NAMES)
        place = place_of(endpoint=endpoint, tables=tables, region=region, profile=profile, data=data)
        resources = wanted(names)
        with place.clients() as (sqs, table_place):
            faults = check(sqs, table_place, resources, project=project)
    except Failure as failure:
        return show(failure)
    except KeyboardInterrupt as reason:
        return say_stopped(reason)
    except Exception as error:  # noqa: BLE001 - the outermost edge
        return show(failure_of(error))
    chosen = {one.scenario for one in resources}
    scenarios = counted(len(chosen), "scenario")
    screen = Screen(sys.stderr)
    if not faults:
        said = f" The resources of {scenarios} are as they must be."
        screen.write([[screen.signs.of("done"), Span(said)]])
        return 0
    hint = "make infra-up TARGET=aws" if place.endpoint == AWS else "penstock lab up, or make infra-up"
    all_of_them = 2 * len(resources) + (0 if place.tables == NO_TABLES else 2 * len(chosen))
    if sum(fault.missing for fault in faults) == all_of_them:
        at = where(place.region, None if place.endpoint == AWS else place.endpoint)
        why = [f"none of the {counted(all_of_them, 'queue or table', 'queues and tables')} is {at}"]
        show(Failure("Nothing is there.", why=why, hint=hint))
        _list(faults)
    else:
        _list(faults)
        said = f"{counted(len(faults), 'fault')} in the resources of {scenarios}."
        show(Failure(said, hint=f"{hint}, which sets them right"))
    return NOT_FOUND


def _list(faults: Sequence[Fault]) -> None:
    """Write faults to stdout: a terminal gets the first, and a program gets all."""
    page = Screen(sys.stdout)
    if not page.terminal:
        for fault in faults:
            page.write_text(f"{harmless(fault.resource)}\t{harmless(fault.problem)}")
        return
    shown = faults if len(faults) <= _SHOWN_MAX + 1 else faults[:_SHOWN_MAX]
    for fault in shown:
        page.write([[page.signs.of("lost"), Span(f" {harmless(fault.resource)}  {harmless(fault.problem)}")]])
    if len(shown) < len(faults):
        page.write([[Span(f"  and {len(faults) - len(shown)} more", "dim")]])
