"""`penstock lab report`: writes the index of all runs that are kept, and opens it or the report of one."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.failures import Failure, show
from penstock.cli.lab.failures import NOT_FOUND, check_names, failure_of


def report(
    name: Annotated[str | None, Parameter(metavar="NAME")] = None,
    /,
    *,
    out: Annotated[Path, Parameter(metavar="DIR")] = Path("lab"),
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
) -> int:
    """Write the index of all reports, and print where it is.

    Parameters
    ----------
    name
        A scenario, for the report of its last run.
    out
        The folder that reports are kept in.
    open_
        Open it in a browser.
    """
    from penstock.lab.archive import Archive, ArchiveBroken
    from penstock.lab.scenarios import NAMES

    archive = Archive(out)
    try:
        kept = archive.summaries()
        check_names([] if name is None else [name], NAMES)
        _check_kept(name, kept)
        path = archive.write_index() if name is None else out / kept[name].href
    except Failure as failure:
        return show(failure)
    except ArchiveBroken as error:
        return show(failure_of(error))
    sys.stdout.write(f"{path}\n")
    if open_:
        webbrowser.open(path.resolve().as_uri())
    return 0


def _check_kept(name: str | None, kept: Collection[str]) -> None:
    if not kept if name is None else name not in kept:
        raise Failure(
            "No scenario has been run yet." if name is None else f"{name} has not been run yet.",
            hint=f"penstock lab run {name or 'happy'}",
            exit_code=NOT_FOUND,
        )
