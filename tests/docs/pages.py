"""Pages of the documentation, the examples in them, and how they are played.

`python` blocks run in order, in one process and one namespace for the whole page; `await` works at their top level.

- A first line `# NAME.py` makes a block a part of that file. All files are there before the first block runs. Files
  named `test_*.py` are run by pytest.
- A `text` block right after it is what a block prints, where `…` stands for anything.
- `<!-- worker: MODULE:APP -->` anywhere on the page starts a worker of that app first.
- `<!-- not run: REASON -->` on the line before a block has it compiled only.

Of a `console` block each `$` line is run by bash, and the lines below it are its output; `^C` interrupts it once those
have come.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"^(?P<mark><!-- not run: (?P<why>.+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_WORKER = re.compile(r"^<!-- worker: (\w+:\w+) -->$", re.MULTILINE)
_FILE = re.compile(r"# (?P<name>\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    """The line of the page on which its text begins."""
    not_run: str
    """Why it cannot run; empty if it can."""
    prints: str | None
    """What it prints; None if the page does not say."""

    @property
    def file(self) -> str | None:
        """The file that it is a part of."""
        named = _FILE.match(self.text)
        return named["name"] if self.language == "python" and named else None

    def compile(self, page: str) -> None:
        """Raise `SyntaxError` unless it is Python."""
        compile("\n" * (self.line - 1) + self.text, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@dataclass(frozen=True)
class Page:
    """One page, by its path in the repository."""

    name: str
    text: str

    @property
    def blocks(self) -> list[Block]:
        """Its blocks in order."""
        found = list(_FENCE.finditer(self.text))
        made = []
        for place, fence in enumerate(found):
            after = found[place + 1] if place + 1 < len(found) else None
            prints = (
                after["text"]
                if after is not None
                and after["language"] == "text"
                and not self.text[fence.end() : after.start()].strip()
                else None
            )
            line = self.text.count("\n", 0, fence.start("text")) + 1
            made.append(Block(fence["language"], fence["text"], line, fence["why"] or "", prints))
        return made

    def of(self, language: str) -> list[Block]:
        """Its blocks of one language."""
        return [block for block in self.blocks if block.language == language]

    @property
    def worker(self) -> str | None:
        """The app whose worker runs while the examples do."""
        named = _WORKER.search(self.text)
        return named[1] if named else None

    def files(self) -> dict[str, str]:
        """The files that its blocks make up, by name."""
        files: dict[str, str] = {}
        for block in self.of("python"):
            if block.file is not None and not block.not_run:
                files[block.file] = files.get(block.file, "") + block.text + "\n\n"
        return files


def page(name: str) -> Page:
    """Read a page."""
    return Page(name, (ROOT / name).read_text(encoding="utf-8"))


def pages() -> list[str]:
    """Return the names of all pages that are for users."""
    found = [path for folder in ("docs", "docs/lab") for path in (ROOT / folder).glob("*.md")]
    return sorted(["README.md", *(str(path.relative_to(ROOT)) for path in found)])


def pattern(printed: str) -> re.Pattern[str]:
    """Return what matches an output as a page shows it: `…` is anything in a line, or, alone in one, any lines."""
    lines = [line.rstrip() for line in printed.strip("\n").split("\n")]
    written = [
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*") + r"[ \t]*\n" for line in lines
    ]
    return re.compile("".join(written))
