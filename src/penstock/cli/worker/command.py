"""The flags of `penstock worker`, and which way they are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cyclopts import Group, Parameter

from penstock.cli.failures import INTERRUPTED, USAGE, Failure, Terminated, show
from penstock.cli.terminal.colours import ColorChoice
from penstock.cli.worker.settings import (
    GRACE_S,
    PROCESSES_MAX,
    RELOAD_GRACE_S,
    LogFormat,
    WorkerSettings,
    new_name,
    read_count,
    read_duration,
    read_health,
    read_queues,
    read_size,
)

_WORK = Group.create_ordered("work")
_LIFE = Group.create_ordered("processes")
_LOGS = Group.create_ordered("logs")


def worker(  # noqa: PLR0913 - one for each flag
    app: Annotated[str, Parameter(group=_WORK, metavar="MODULE:APP")],
    /,
    *,
    queue: Annotated[tuple[str, ...], Parameter(metavar="NAME:N", alias="-q", group=_WORK, negative="")] = (),
    import_: Annotated[tuple[str, ...], Parameter(metavar="MODULE", name="--import", group=_WORK, negative="")] = (),
    name: Annotated[str | None, Parameter(metavar="NAME", group=_WORK)] = None,
    processes: Annotated[int, Parameter(metavar="N", group=_LIFE)] = 1,
    grace: Annotated[str | None, Parameter(metavar="25s", group=_LIFE)] = None,
    max_jobs: Annotated[int | None, Parameter(metavar="N", group=_LIFE)] = None,
    max_rss: Annotated[str | None, Parameter(metavar="512M", group=_LIFE)] = None,
    health: Annotated[str | None, Parameter(metavar="HOST:PORT", group=_LIFE)] = None,
    reload: Annotated[bool, Parameter(group=_LIFE, negative="")] = False,
    status: Annotated[bool, Parameter(group=_LOGS)] = True,
    verbose: Annotated[int, Parameter(alias="-v", group=_LOGS, count=True)] = 0,
    log_format: Annotated[LogFormat, Parameter(metavar="KIND", group=_LOGS)] = "console",
    color: Annotated[ColorChoice, Parameter(metavar="WHEN", group=_LOGS)] = "auto",
) -> int:
    """Run tasks of an app until you stop it.

    Parameters
    ----------
    app
        Where the app is: shop:app is app in the module shop. Just shop finds app, or the only Penstock in the module.
        Modules in the current folder are found.
    queue
        Queue to take jobs from, and how many of its jobs run at once; 10 without a number. Can be repeated. By default,
        all queues of the app's tasks.
    import_
        Another module that declares tasks. Can be repeated.
    name
        Name of this worker on the server. By default the app's package and four random digits.
    processes
        Number of processes, each with all slots. One that dies is started again.
    grace
        How long running jobs get when the worker stops. Jobs that need longer are given back. By default 25s, with
        --reload 2s.
    max_jobs
        Replace the process after this many jobs.
    max_rss
        Replace the process when it uses more memory than this.
    health
        Answer GET /healthz at this address: 200 while the worker takes jobs, else 503. Each further process uses the
        next port.
    reload
        Restart when a Python file below the current folder changes. For development.
    status
        Hide the live line at the foot of the terminal.
    verbose
        Log each job (-v), and each request too (-vv).
    log_format
        console, logfmt or json. Where there is no terminal, console is logfmt. Logs go to stderr.
    color
        auto, always or never. With auto, colours are used in a terminal unless NO_COLOR is set.
    """
    return run(
        lambda: read_settings(
            app,
            queue=queue,
            import_=import_,
            name=name,
            processes=processes,
            grace=grace,
            max_jobs=max_jobs,
            max_rss=max_rss,
            health=health,
            reload=reload,
            status=status,
            verbose=verbose,
            log_format=log_format,
            color=color,
        ),
        color,
    )


def run(read: Callable[[], WorkerSettings], color: ColorChoice) -> int:
    """Run a worker with the settings that `read` returns, and return the exit code. A `Failure` is shown."""
    try:
        return _run(read())
    except Failure as failure:
        return show(failure, color)
    except Terminated:
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def read_settings(  # noqa: PLR0913 - as `worker`
    app: str,
    *,
    queue: tuple[str, ...] = (),
    import_: tuple[str, ...] = (),
    name: str | None = None,
    processes: int = 1,
    grace: str | None = None,
    max_jobs: int | None = None,
    max_rss: str | None = None,
    health: str | None = None,
    reload: bool = False,
    status: bool = True,
    verbose: int = 0,
    log_format: LogFormat = "console",
    color: ColorChoice = "auto",
) -> WorkerSettings:
    """Read the flags of `worker`; raises `Failure`."""
    return WorkerSettings(
        target=app,
        name=name or new_name(app),
        queues=read_queues(queue),
        grace_s=(RELOAD_GRACE_S if reload else GRACE_S) if grace is None else read_duration(grace, "--grace"),
        processes=read_count(processes, "--processes", PROCESSES_MAX) or 1,
        max_jobs=read_count(max_jobs, "--max-jobs"),
        max_rss=None if max_rss is None else read_size(max_rss, "--max-rss"),
        imports=import_,
        health=None if health is None else read_health(health, processes),
        reload=reload,
        status=status,
        verbose=verbose,
        log_format=log_format,
        color=color,
    )


def _run(settings: WorkerSettings) -> int:
    if settings.reload and settings.processes > 1:
        raise Failure("--reload runs one process.", hint="leave out --processes or --reload", exit_code=USAGE)
    if settings.reload:
        from penstock.cli.worker.reloading import Reloader

        return Reloader(settings).run()
    if settings.processes > 1:
        from penstock.cli.worker.supervisor import Supervisor

        return Supervisor(settings).run()
    from penstock.cli.worker.process import work

    return work(settings)
