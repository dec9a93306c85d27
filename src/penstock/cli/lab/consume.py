"""`penstock lab consume`: a consumer whose environment says how it fails."""

from __future__ import annotations

import os

from penstock.cli.failures import show
from penstock.cli.lab.failures import Sought, failure_of
from penstock.cli.lab.place import no_queue, variables

NO_QUEUE = 1
"""The exit code without a queue. A bad value of a variable is 2."""


def consume() -> int:
    """Consume a queue until you stop it with Ctrl+C or SIGTERM. Its settings are environment variables."""
    from penstock.lab.consumer import main

    given = variables()
    if not given.get("QUEUE_URL"):
        return show(no_queue(NO_QUEUE))
    os.environ.update(given)
    try:
        return main()
    except Exception as error:  # noqa: BLE001 - the outermost edge
        return show(failure_of(error, Sought(given["QUEUE_URL"], given.get("AWS_REGION"))))
