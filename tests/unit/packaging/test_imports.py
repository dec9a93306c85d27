"""What an import loads: each command and each library call pays only for what it uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = {"fastapi", "starlette", "pydantic", "anyio"}
"""No part of the runtime, so that they cannot fight with the user's own."""

OPTIONAL = {"aiobotocore", "asyncpg", "boto3", "botocore", "opentelemetry"}
"""What extras bring."""

SERVING = {"apsw", "httptools", "prometheus_client", "uvicorn", "uvloop"}


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh Python has loaded after running some code."""
    program = f"import sys\n{code}\nprint('\\n'.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    # -I and an empty environment would hide an editable install; a plugin of the test run must not count.
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_importing_penstock_loads_hardly_anything() -> None:
    extra = loaded_by("import penstock") - loaded_by("import importlib, typing")
    assert extra == {"penstock"}


def test_the_version_is_the_one_that_is_installed() -> None:
    code = "import penstock, importlib.metadata as m; assert penstock.__version__ == m.version('penstock')"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("code", ["import penstock.cli", "import penstock.cli.serve"])
def test_the_command_line_loads_no_server(code: str) -> None:
    assert not loaded_by(code) & (FRAMEWORKS | OPTIONAL | SERVING)


def test_the_engine_on_sqlite_loads_no_http() -> None:
    code = """
import asyncio
from penstock.engine import Engine
async def main():
    async with Engine.open("memory:"):
        pass
asyncio.run(main())
"""
    loaded = loaded_by(code)
    assert "apsw" in loaded
    assert not loaded & (FRAMEWORKS | OPTIONAL | (SERVING - {"apsw"}))


def test_a_server_on_sqlite_loads_no_framework_and_no_extra() -> None:
    loaded = loaded_by("import penstock.server.process, penstock.server.serving, penstock.store.sqlite")
    assert "uvloop" in loaded
    assert not loaded & (FRAMEWORKS | OPTIONAL)
