"""Writes the sync face of the client, `penstock.client.sync`, from the async one, `penstock.client.verbs`.

Run `python scripts/make_sync.py` after a change to a verb. `--check` only says whether that is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "penstock" / "client"
MADE = "# Made of penstock/client/verbs by scripts/make_sync.py. Change that, and run the script.\n"
REPLACED = {
    r"async def ": "def ",
    r"async for ": "for ",
    r"async with ": "with ",
    r"\bawait ": "",
    r"\bAsyncIterator\b": "Iterator",
    r"\bAsyncGenerator\[([^\[\]]+)\]": r"Generator[\1, None, None]",
    r"\bAsyncGenerator\b": "Generator",
    r"\bAsyncExitStack\b": "ExitStack",
    r"\bAbstractAsyncContextManager\b": "AbstractContextManager",
    r"\benter_async_context\b": "enter_context",
    r"\baclosing\b": "closing",
    r"\baclose\b": "close",
    r"\b__aenter__\b": "__enter__",
    r"\b__aexit__\b": "__exit__",
    r"\b__aiter__\b": "__iter__",
    r"\bAsyncSender\b": "SyncSender",
    r"\bAsyncFace\b": "SyncFace",
    r"\bpenstock\.client\.verbs\b": "penstock.client.sync",
}
DOCSTRING = '"""The verbs of the job API as blocking methods, made of the async ones."""\n'


def made_files() -> dict[Path, str]:
    """Return what each file of the sync face has to hold."""
    made = {CLIENT / "sync" / "__init__.py": MADE + DOCSTRING}
    for source in sorted((CLIENT / "verbs").glob("*.py")):
        if source.name != "__init__.py":
            made[CLIENT / "sync" / source.name] = _formatted(MADE + _sync(source.read_text()))
    return made


def _sync(text: str) -> str:
    for pattern, replacement in REPLACED.items():
        text = re.sub(pattern, replacement, text)
    return text


def _formatted(text: str) -> str:
    """Lay it out as the rest is."""
    for arguments in (["check", "--select", "I,TC", "--fix-only", "--exit-zero", "--quiet"], ["format"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(CLIENT / "sync" / "a.py"), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    """Write the files, or with `--check` name those that are out of date."""
    made = made_files()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    gone = [path for path in (CLIENT / "sync").glob("*.py") if path not in made]
    if "--check" in sys.argv:
        for path in (*stale, *gone):
            print(f"{path} is out of date: run scripts/make_sync.py")
        return 1 if stale or gone else 0
    for path in gone:
        path.unlink()
    for path in stale:
        path.write_text(made[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
