"""What a benchmark says while it runs, on standard error, so that standard output holds the result alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Narrator:
    """Tells what is being done; on a terminal, with a bar where it takes long."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)

    def say(self, text: str) -> None:
        """Tell what comes next."""
        self._console.print(text, style="dim", highlight=False)

    @contextlib.contextmanager
    def counting(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show how many of `total` are done; the value is called with how many more there are."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(text, total=total)
            yield lambda more: progress.advance(task, more)
