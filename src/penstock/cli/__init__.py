"""The command line: `penstock serve` and `penstock --version`."""

from __future__ import annotations

import cyclopts

from penstock import __version__

app = cyclopts.App(
    name="penstock",
    help="Durable queues and jobs, with an SQS-compatible server on SQLite or PostgreSQL.",
    version=__version__,
    version_flags=["--version"],
    help_flags=["--help", "-h"],
)


def _settings_of_file(serve: cyclopts.App, commands: tuple[str, ...], arguments: cyclopts.ArgumentCollection) -> None:
    from penstock.cli.serve import settings_of_file

    settings_of_file(serve, commands, arguments)


# By name, so that a command's modules are loaded only when it runs.
app.command(
    "penstock.cli.serve:serve",
    name="serve",
    help="""Run the server until it is told to stop (SIGTERM, or Ctrl-C).

    It prints one line with its address once it takes requests. Any AWS SDK works with it, told the endpoint, with any
    credentials: boto3.client("sqs", endpoint_url="http://127.0.0.1:9324", region_name="us-east-1").
    """,
    config=[cyclopts.config.Env("PENSTOCK_", command=False), _settings_of_file],
)


def main() -> None:
    """Run the command that the arguments name, and exit with its result."""
    app()
