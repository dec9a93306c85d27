"""A real browser for tests, and pages for it to show."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

INSTALL_TIMEOUT_S = 240.0
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Newer browsers ask before a page of the Internet may reach a machine of one's own. Not all do, and people agree.
    "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWarn",
]


def find_chromium() -> str:
    """Return the path of Chromium, installed first where that can be done; skip the test where it cannot."""
    found = _installed()
    if found is not None:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        pytest.skip("Chromium is not installed: whether web pages are refused was NOT tried in a browser")
    with (Path(tempfile.gettempdir()) / "penstock-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Of several test processes only one installs.
        if _installed() is None:
            _install(apt)
    found = _installed()
    if found is None:
        pytest.skip("Chromium could not be installed: whether web pages are refused was NOT tried in a browser")
    return found


def _installed() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)


def _install(apt: str) -> None:
    settings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([apt, *arguments], capture_output=True, check=False, env=settings, timeout=INSTALL_TIMEOUT_S)


@contextlib.asynccontextmanager
async def browsing(path: str, *names: str) -> AsyncIterator[Browser]:
    """Run a browser to which these names are names of this machine."""
    rules = ", ".join(f"MAP {name} 127.0.0.1" for name in names)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=[*_ARGUMENTS, f"--host-resolver-rules={rules}"]
        )
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.contextmanager
def page_server(html: str) -> Iterator[int]:
    """Serve one page at every path of a port of this machine, and return the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = html.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
