"""Plays the Python blocks of a page, which it reads as JSON from stdin, in a process of their own."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import io
import json
import re
import sys
import threading
from contextlib import redirect_stdout
from typing import Any

from penstock import Penstock, Worker


class WorkerThread(threading.Thread):
    """A worker on an event loop of its own."""

    def __init__(self, app: Penstock) -> None:
        super().__init__(name="worker")
        self._app = app
        self._worker = Worker(app, grace=1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._work())
        except Exception as error:  # noqa: BLE001 - the page fails by it
            self.failure = error
        finally:
            self._started.set()

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._worker.run(signals=False)

    def begin(self) -> None:
        self.start()
        self._started.wait()

    def end(self) -> None:
        if self._loop is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._worker.stop)
        self.join()
        self._app.close()


def play(block: dict[str, Any], names: dict[str, object], runner: asyncio.Runner) -> None:
    """Run a block and compare what it prints."""
    padded = "\n" * (block["line"] - 1) + block["text"]
    code = compile(padded, block["page"], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with redirect_stdout(io.StringIO()) as output:
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, names))
        else:
            exec(code, names)
    if block["prints"] is not None and not re.fullmatch(block["prints"], output.getvalue()):
        raise AssertionError(f"{block['page']}:{block['line']} printed:\n{output.getvalue()}")


def main() -> None:
    page = json.load(sys.stdin)
    sys.path.insert(0, "")
    worker = None
    if page["worker"] is not None:
        module, _, name = page["worker"].partition(":")
        worker = WorkerThread(getattr(importlib.import_module(module), name))
        worker.begin()
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        with asyncio.Runner() as runner:
            for block in page["blocks"]:
                if worker is not None and worker.failure is not None:
                    raise worker.failure
                play(block, names, runner)
    finally:
        if worker is not None:
            worker.end()


if __name__ == "__main__":
    main()
