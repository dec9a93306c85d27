"""`penstock lab consume`: a consumer whose environment says how it fails."""

from __future__ import annotations

from penstock.cli.failures import show
from penstock.cli.lab.failures import failure_of


def consume() -> int:
    """Consume a queue until you stop it with Ctrl+C or SIGTERM. Its settings are environment variables."""
    from penstock.lab.consumer import main

    try:
        return main()
    except Exception as error:  # noqa: BLE001 - the outermost edge
        return show(failure_of(error))
