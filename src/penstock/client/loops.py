"""Where an event loop runs, blocking calls are refused."""

from __future__ import annotations

import sys

from penstock.client.errors import WrongThread


def refuse_on_loop(method: str, instead: str) -> None:
    """Raise `WrongThread` where an event loop runs."""
    events = sys.modules.get("asyncio.events")
    if events is not None and events._get_running_loop() is not None:  # noqa: SLF001 - what libraries use for this
        raise WrongThread(f"{method} would block the event loop that runs on this thread. Await {instead} instead.")
