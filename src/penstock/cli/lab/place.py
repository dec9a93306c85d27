"""Which endpoint and which tables a command means: its flags, else QUEUE_URL, else what `lab up` wrote or started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cli.failures import USAGE, Failure
from penstock.cli.lab.failures import NOT_FOUND

if TYPE_CHECKING:
    from penstock.lab.tables.places import TablePlace

AWS = "aws"
NO_TABLES = "none"
ENV_FILE = Path(".env")


class Place(NamedTuple):
    """Where queues and tables are."""

    endpoint: str
    """A URL, or `aws`."""
    tables: str
    region: str
    profile: str

    @contextlib.contextmanager
    def clients(self) -> Iterator[tuple[Any, TablePlace | None]]:
        """Open clients for the queues and the tables, and close them at the end of the block."""
        from penstock.lab.endpoints import client
        from penstock.lab.tables.places import table_place

        endpoint = None if self.endpoint == AWS else self.endpoint
        sqs = client("sqs", endpoint=endpoint, region=self.region, profile=self.profile or None, tries=3)
        tables = None
        try:
            if self.tables != NO_TABLES:
                tables = table_place(self.tables, region=self.region, profile=self.profile or None)
            yield sqs, tables
        finally:
            sqs.close()
            if tables is not None:
                tables.close()


def variables() -> Mapping[str, str]:
    """Return the environment. If it names no queue, what `penstock lab up` wrote into this folder is added."""
    if os.environ.get("QUEUE_URL"):
        return os.environ
    from penstock.lab.env_file import read_ours

    # A variable that is set to nothing switches off what the file has: MESSAGE_SIDE_EFFECTS_TABLE= for no table.
    return read_ours(ENV_FILE) | {name: value for name, value in os.environ.items() if name != "QUEUE_URL"}


def no_queue(exit_code: int) -> Failure:
    """Return the failure of a command that needs a queue and has none."""
    hint = "penstock lab up, or source scripts/set_env.sh"
    return Failure("No queue: QUEUE_URL is not set.", hint=hint, exit_code=exit_code)


def place_of(*, endpoint: str | None, tables: str | None, region: str | None, profile: str | None, data: Path) -> Place:
    """Return the place that is meant; raises `Failure` for a bad flag, and if nothing says where."""
    from penstock.lab.background_server import BackgroundServer
    from penstock.lab.endpoints import REGION, endpoint_of

    given = os.environ if endpoint is not None else variables()
    if endpoint is None and (queue_url := given.get("QUEUE_URL")):
        endpoint = endpoint_of(queue_url) or AWS
    if endpoint is None and (running := BackgroundServer(data).running):
        endpoint = running.url
    if endpoint is None:
        raise Failure(
            "Nothing says where the queues are.",
            why=[f"no --endpoint, no QUEUE_URL, no {ENV_FILE} of penstock lab up, and no server of {data} runs"],
            hint="penstock lab up",
            exit_code=NOT_FOUND,
        )
    return Place(
        endpoint=checked_endpoint(endpoint),
        tables=checked_tables(tables, endpoint, data),
        region=region or given.get("AWS_REGION") or REGION,
        profile=profile or "",
    )


def checked_endpoint(given: str) -> str:
    """Return an endpoint as it is used; raises `Failure`."""
    if given == AWS or given.startswith(("http://", "https://")):
        return given.rstrip("/")
    raise Failure(f"--endpoint is a URL or aws, not {given}.", exit_code=USAGE)


def checked_tables(given: str | None, endpoint: str, data: Path) -> str:
    """Return where tables are: on AWS in DynamoDB, elsewhere in a file, unless a flag says otherwise."""
    if given is None:
        return "dynamodb:" if endpoint == AWS else f"sqlite:{data / 'tables.db'}"
    if given == NO_TABLES or given.startswith("dynamodb:") or (given.startswith("sqlite:") and given != "sqlite:"):
        return given
    raise Failure(f"--tables is sqlite:PATH, dynamodb:, dynamodb:ENDPOINT or none, not {given}.", exit_code=USAGE)
