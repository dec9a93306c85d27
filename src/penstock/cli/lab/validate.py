"""`penstock lab validate`: checks that the queues and tables of the scenarios are there and as they must be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.failures import Failure, show
from penstock.cli.lab.failures import NOT_FOUND, check_names, failure_of
from penstock.cli.lab.place import place_of
from penstock.cli.lab.stopping import say_stopped
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.values import counted


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
    scenarios = counted(len({one.scenario for one in resources}), "scenario")
    screen = Screen(sys.stderr)
    if not faults:
        said = f" The resources of {scenarios} are as they must be."
        screen.write([[screen.signs.of("done"), Span(said)]])
        return 0
    page = Screen(sys.stdout)
    for fault in faults:
        if page.terminal:
            page.write([[page.signs.of("lost"), Span(f" {harmless(fault.resource)}  {harmless(fault.problem)}")]])
        else:
            page.write_text(f"{harmless(fault.resource)}\t{harmless(fault.problem)}")
    screen.write([[], [Span(f"{counted(len(faults), 'fault')} in the resources of {scenarios}.")]])
    return NOT_FOUND
