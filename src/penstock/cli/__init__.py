"""The command line: its commands, the help, and what is said about arguments that make no sense."""

from __future__ import annotations

import sys
import time

STARTED_S = time.perf_counter()
"""When this process began its work."""

import cyclopts  # noqa: E402 - counted as part of the start

from penstock import __version__  # noqa: E402
from penstock.cli.terminal.help import Help  # noqa: E402

app = cyclopts.App(
    name="penstock",
    help="Durable queues and jobs, with an SQS-compatible server on SQLite or PostgreSQL.",
    help_format="plaintext",
    help_formatter=Help(),
    help_epilogue="Example: penstock serve",
    version=__version__,
    version_flags=["--version"],
    help_flags=["--help", "-h"],
)

COMMANDS: dict[str, tuple[str, ...]] = {"Run": ("serve", "worker APP", "lab", "relay"), "Look": ("schedule",)}
"""The commands by what they are for, as the short help lists them. It has every command of `app`."""


def _settings_of_file(serve: cyclopts.App, commands: tuple[str, ...], arguments: cyclopts.ArgumentCollection) -> None:
    from penstock.cli.serve import settings_of_file

    settings_of_file(serve, commands, arguments)


# By name, so that a command's modules are loaded only when it runs.
app.command(
    "penstock.cli.serve:serve",
    name="serve",
    help="""Run the server until you stop it with Ctrl+C or SIGTERM.

    Each flag is also an environment variable (--tls-key is PENSTOCK_TLS_KEY) and a setting in the file of --config
    (tls_key). Flags override environment variables, which override the file.
    """,
    help_formatter=Help(label_cells=24),
    help_epilogue="Example: penstock serve --port 9325 --store sqlite:./queues.db",
    config=[cyclopts.config.Env("PENSTOCK_", command=False), _settings_of_file],
)

app.command(
    "penstock.cli.worker.command:worker",
    name="worker",
    help="Run the tasks of an app until you stop it with Ctrl+C or SIGTERM.",
    help_formatter=Help(label_cells=21),
    help_epilogue="Example: penstock worker shop:app -q mail:20 -q docs --processes 2",
)

app.command(
    "penstock.cli.relay:relay",
    name="relay",
    help="""Enqueue the jobs that an outbox in your database holds, until you stop it with Ctrl+C or SIGTERM.

    Your program adds jobs to the table penstock_outbox in its own transactions. Any number of relays can share a table.
    """,
    help_formatter=Help(label_cells=24),
    help_epilogue="Example: penstock relay --database postgresql://db/shop --to http://queue:9324",
)

schedule = cyclopts.App(
    name="schedule",
    help="List schedules, and remove those that an app no longer has.",
    help_epilogue="Example: penstock schedule ls shop:app",
)
schedule.command(
    "penstock.cli.schedule:prune",
    name="prune",
    help="Remove schedules of every @app.cron that the app no longer has.",
    help_formatter=Help(label_cells=15),
    help_epilogue="Example: penstock schedule prune shop:app --dry-run",
)
schedule.command(
    "penstock.cli.schedule:ls",
    name="ls",
    help="List all schedules on the server that an app uses.",
    help_formatter=Help(label_cells=15),
    help_epilogue="Example: penstock schedule ls shop:app",
)
app.command(schedule)

lab = cyclopts.App(
    name="lab",
    help="Run failures on purpose, and see whether the rules of queues hold.",
    help_epilogue="Example: penstock lab run duplicates --open",
)
_CONSUME = """Consume a queue until you stop it with Ctrl+C or SIGTERM.

Environment variables say which queue, and how it fails. docs/lab explains each one and gives its default.

The queue: QUEUE_URL (required), AWS_REGION, WAIT_TIME_SECONDS, MAX_MESSAGES, MESSAGE_LIMIT, IDLE_TIMEOUT_SECONDS.

The tables: MESSAGE_STATUS_TABLE, MESSAGE_SIDE_EFFECTS_TABLE, TABLES_URL, BUSINESS_IDEMPOTENCY_FIELD,
IDEMPOTENCY_CACHE_SIZE.

The work: SIDE_EFFECT_DELAY_SECONDS, SIDE_EFFECT_LOG_PATH, SIDE_EFFECT_LOG_FIELD, HEARTBEAT_SECONDS,
STALE_AFTER_SECONDS, RETRY_BASE_SECONDS, RETRY_MAX_SECONDS, RETRY_JITTER, VERSIONING_ENABLED, VERSION_KEY, ENTITY_KEY,
VERSION_STATE_PATH, VERSION_LOG_PATH, VERSION_SEEN_LOG_PATH.

Failures: CRASH_RATE, CRASH_AFTER_RECEIVE, CRASH_AFTER_SIDE_EFFECT, FAIL_RECEIVES, REJECT_PAYLOAD_MARKER, FLAWS,
CRASH_AT_STEPS (1,2,4: the first receive of a message crashes before step 1, the second before step 2, the third before
step 4). A crash exits with 3.

LOG_LEVEL is DEBUG, INFO, WARNING or ERROR.
"""
_LAB_USAGE = {
    "report": "penstock lab report [NAME] [OPTIONS]",
    **{name: f"penstock lab {name} [NAMES...] [OPTIONS]" for name in ("run", "up", "validate", "down")},
}
"""Usage lines of commands with optional arguments, which cyclopts leaves out."""
for _name, _help, _cells, _example in (
    ("ls", "List the scenarios, and what became of each last.", 11, "penstock lab ls"),
    ("run", "Run scenarios, each in its protected and its broken variant.", 28, "penstock lab run duplicates --open"),
    ("report", "Write the index of all reports, and print where it is.", 11, "penstock lab report --open"),
    ("produce", "Send messages with an id and some work to a queue.", 16, "penstock lab produce --n 100 --rate 20"),
    ("consume", _CONSUME, 0, "CRASH_RATE=0.2 penstock lab consume"),
    ("up", "Make the queues and tables of scenarios, on a server of this machine.", 15, "penstock lab up"),
    ("validate", "Check the queues and tables of scenarios.", 15, "penstock lab validate --endpoint aws"),
    ("down", "Remove the queues and tables, and stop the server that up started.", 15, "penstock lab down"),
):
    lab.command(
        f"penstock.cli.lab.{_name}:{_name}",
        name=_name,
        help=_help,
        help_formatter=Help(label_cells=_cells),
        help_epilogue=f"Example: {_example}",
        usage=_LAB_USAGE.get(_name),
    )
app.command(lab)


def main() -> None:
    """Run the command that the arguments name, and exit with its result: 2 if they make no sense."""
    arguments = sys.argv[1:]
    if not arguments:
        from penstock.cli.usage import show_short_help

        show_short_help(COMMANDS)
        sys.exit(0)
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        from penstock.cli.usage import explain

        explain(app, error, arguments)
        sys.exit(2)
