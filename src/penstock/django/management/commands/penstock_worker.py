"""`manage.py penstock_worker`: runs the tasks of a project, as `penstock worker` runs those of an app."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand

from penstock.cli.failures import USAGE, Failure
from penstock.cli.worker.command import read_settings, run
from penstock.django.framework import DEFAULT_TASK_BACKEND_ALIAS
from penstock.django.worker_settings import COMMAND, DjangoWorkerSettings, find_backend, queues_of

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from penstock.cli.terminal.colours import ColorChoice


class Command(BaseCommand):
    """The flags, and which way they are run."""

    help = "Run the tasks of this project until you stop it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the flags of `penstock worker`, but for those that Django has itself."""
        parser.add_argument(
            "-q",
            "--queue",
            action="append",
            default=[],
            metavar="NAME:N",
            help="Queue to take jobs from, and how many of its jobs run at once; 10 without a number. Can be repeated. "
            "By default, all of QUEUES.",
        )
        parser.add_argument(
            "--backend", default=DEFAULT_TASK_BACKEND_ALIAS, metavar="ALIAS", help="Which backend of TASKS."
        )
        parser.add_argument(
            "--import",
            dest="import_",
            action="append",
            default=[],
            metavar="MODULE",
            help="Another module that declares tasks, besides the tasks.py of each installed app. Can be repeated.",
        )
        parser.add_argument("--name", metavar="NAME", help="Name of this worker on the server.")
        parser.add_argument(
            "--processes", type=int, default=1, metavar="N", help="Number of processes, each with all slots."
        )
        parser.add_argument("--grace", metavar="25s", help="How long running jobs get when the worker stops.")
        parser.add_argument("--max-jobs", type=int, metavar="N", help="Replace the process after this many jobs.")
        parser.add_argument("--max-rss", metavar="512M", help="Replace the process when it uses more memory than this.")
        parser.add_argument("--health", metavar="HOST:PORT", help="Answer GET /healthz at this address.")
        parser.add_argument(
            "--reload", action="store_true", help="Restart when a Python file below this folder changes."
        )
        parser.add_argument("--no-status", action="store_true", help="Hide the live line at the foot of the terminal.")
        parser.add_argument("--log-format", choices=["console", "logfmt", "json"], default="console")

    def handle(self, *_: object, **given: Any) -> None:  # noqa: ANN401 - as Django has it
        """Work until SIGTERM or Ctrl+C."""
        color: ColorChoice = "never" if given["no_color"] else "always" if given["force_color"] else "auto"
        code = run(lambda: self._read(given, color), color)
        if code:
            sys.exit(code)

    def _read(self, given: dict[str, Any], color: ColorChoice) -> DjangoWorkerSettings:
        project = (settings.SETTINGS_MODULE or "django").partition(".")[0]
        read = read_settings(
            project,
            queue=tuple(given["queue"]),
            import_=tuple(given["import_"]),
            name=given["name"] or f"{project}-{secrets.token_hex(2)}",
            processes=given["processes"],
            grace=given["grace"],
            max_jobs=given["max_jobs"],
            max_rss=given["max_rss"],
            health=given["health"],
            reload=given["reload"],
            status=not given["no_status"],
            verbose=max(given["verbosity"] - 1, 0),
            log_format=given["log_format"],
            color=color,
        )
        starts_again = read.processes > 1 or read.reload or read.max_jobs is not None or read.max_rss is not None
        if starts_again and sys.argv[1:2] != [COMMAND]:
            raise Failure(
                "--processes, --reload, --max-jobs and --max-rss start the program again, which call_command cannot.",
                hint=f"python manage.py {COMMAND}",
                exit_code=USAGE,
            )
        fields = {name: getattr(read, name) for name in read.__struct_fields__}
        fields["queues"] = queues_of(find_backend(given["backend"]), read.queues)
        return DjangoWorkerSettings(
            **fields, backend=given["backend"], settings_module=given["settings"], python_path=given["pythonpath"]
        )
