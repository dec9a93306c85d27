"""`penstock schedule`: looks at schedules, and removes those that an app left behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.apps import find_app
from penstock.cli.failures import INTERRUPTED, USAGE, Failure, failure_of, show
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.text import Span, harmless

if TYPE_CHECKING:
    from penstock.client.app import Penstock
    from penstock.wire.jobs.answers import ScheduleView

PAGE = 500


def prune(
    app: Annotated[str, Parameter(metavar="MODULE:APP")],
    /,
    *,
    import_: Annotated[tuple[str, ...], Parameter(metavar="MODULE", name="--import", negative="")] = (),
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> int:
    """Remove schedules of every @app.cron that the app no longer has.

    Parameters
    ----------
    app
        Where the app is, as with penstock worker.
    import_
        Another module that declares tasks. Can be repeated. Give all that your workers get.
    dry_run
        Show what would be removed, and change nothing.
    yes
        Do not ask.
    all_
        Also remove schedules of packages that the app has no task in. They may belong to another app.
    """
    return _reported("prune", app, import_, lambda found: _prune(found, dry_run=dry_run, yes=yes, everything=all_))


def ls(
    app: Annotated[str, Parameter(metavar="MODULE:APP")],
    /,
    *,
    import_: Annotated[tuple[str, ...], Parameter(metavar="MODULE", name="--import", negative="")] = (),
) -> int:
    """List all schedules on the server that an app uses.

    Parameters
    ----------
    app
        Where the app is, as with penstock worker.
    import_
        Another module that declares tasks. Can be repeated.
    """
    return _reported("ls", app, import_, _list)


class Stale:
    """Which schedules of a server no task of an app stands for any more."""

    def __init__(self, app: Penstock, schedules: Iterable[ScheduleView]) -> None:
        from penstock.client.tasks.app import CRON_PREFIX

        current = {cron.name for cron in app.crons}
        packages = {_package(name) for name in app.tasks}
        saved = [schedule for schedule in schedules if schedule.name.startswith(CRON_PREFIX)]
        gone = [schedule for schedule in saved if schedule.name not in current]
        self.own = [schedule for schedule in gone if _package(schedule.task) in packages]
        self.others = [schedule for schedule in gone if _package(schedule.task) not in packages]
        """Of packages that the app has no task in: another app may have them."""


def _prune(app: Penstock, *, dry_run: bool, yes: bool, everything: bool) -> None:
    from penstock.client.errors import ScheduleNotFound

    if not app.tasks:
        raise Failure(
            "The app has no tasks, so nothing can be said about its schedules. Nothing was changed.",
            hint="name the modules that declare them: --import, or app.include in your code",
        )
    stale = Stale(app, _all_schedules(app))
    doomed = [*stale.own, *stale.others] if everything else stale.own
    left = [] if everything else stale.others
    if not doomed:
        _say(f"No schedules to remove on {app.address}")
        _tell_left(left)
        return
    count = f"{len(doomed):,} {'schedule' if len(doomed) == 1 else 'schedules'}"
    _say(f"{'Would remove' if dry_run else 'Remove'} {count} on {app.address}")
    _say_rows(app, doomed)
    _tell_left(left)
    if dry_run:
        _say("Nothing was changed. Without --dry-run it asks you to confirm.")
        return
    if not yes:
        _confirm(len(doomed))
    for schedule in doomed:
        try:
            app.sync.schedules.delete(schedule.name)
        except ScheduleNotFound:
            continue  # Somebody else removed it just now.
    _say(f"{count} removed", "done")


def _list(app: Penstock) -> None:
    head = ("schedule", "task", "queue", "when", "zone", "next_at", "paused")
    rows = [
        (
            harmless(schedule.name),
            harmless(schedule.task),
            harmless(schedule.queue),
            _when(schedule),
            schedule.zone,
            _instant(schedule.next_at_ms),
            "true" if schedule.paused else "false",
        )
        for schedule in _all_schedules(app)
    ]
    if not rows:
        _say(f"No schedules on {app.address}")
        return
    screen = Screen(sys.stdout)
    if screen.terminal:
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        for row in (head, *rows):
            line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            screen.write([[Span(line, "dim" if row is head else "")]])
    else:
        sys.stdout.write("".join("\t".join(row) + "\n" for row in (head, *rows)))


def _all_schedules(app: Penstock) -> list[ScheduleView]:
    found: list[ScheduleView] = []
    after: str | None = None
    while True:
        page = app.sync.schedules.list(after=after, limit=PAGE)
        found += page.schedules
        if page.after is None:
            return found
        after = page.after


def _say_rows(app: Penstock, schedules: Sequence[ScheduleView]) -> None:
    width = max(len(schedule.name) for schedule in schedules)
    for schedule in schedules:
        why = "its task has no cron any more" if schedule.task in app.tasks else "its task is gone"
        _say(f"  {schedule.name:<{width}}  {_when(schedule)}  {why}")


def _tell_left(left: Sequence[ScheduleView]) -> None:
    if not left:
        return
    _say("Left alone, because other apps may have them:")
    for schedule in left:
        _say(f"  {schedule.name}")
    _say("  --all includes them")


def _confirm(count: int) -> None:
    """Have a person type the count, as with everything that deletes; raises `Failure`."""
    if not sys.stdin.isatty():
        raise Failure(
            "Nobody can be asked here, as stdin is no terminal. Nothing was changed.",
            hint="add --yes",
            kind="refused",
            exit_code=USAGE,
        )
    sys.stderr.write(f"Type {count} to remove {'it' if count == 1 else 'them'}: ")
    sys.stderr.flush()
    typed = sys.stdin.readline().strip()
    if typed != str(count):
        raise Failure(f"{typed or 'Nothing'} is not {count}. Nothing was removed.", kind="refused")


def _reported(command: str, target: str, imports: Sequence[str], do: Callable[[Penstock], None]) -> int:
    """Do it with the app; say what went wrong, and return the exit code."""
    from penstock.domain.errors import PenstockError

    address = "the server"
    try:
        app = find_app(target, imports, f"schedule {command}")
        address = app.address
        with app:
            do(app)
    except Failure as failure:
        return show(failure)
    except PenstockError as error:
        return show(failure_of(error, address))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _say(line: str, state: str = "") -> None:
    """Write a line to stderr, after the sign of a state if there is one."""
    screen = Screen(sys.stderr)
    sign = [screen.signs.of(state), Span(" ")] if state else []
    screen.write([[*sign, Span(harmless(line))]])


def _package(task: str) -> str:
    return task.partition(".")[0]


def _when(schedule: ScheduleView) -> str:
    if schedule.cron is not None:
        return schedule.cron
    return "" if schedule.interval_ms is None else f"every {schedule.interval_ms / 1_000:g} s"


def _instant(at_ms: int | None) -> str:
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
