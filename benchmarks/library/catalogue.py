"""The libraries that take part: what each is called, what it stores jobs in, and which classes it has."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal

import msgspec

import penstock
from benchmarks.peers.fetching import GoFolder, PythonPackages

Class = Literal["durable", "defaults"]
CLASSES: dict[Class, str] = {"durable": "nothing acknowledged is lost", "defaults": "as it comes"}
Keeps = Literal["Redis", "PostgreSQL", "server on SQLite", "server on PostgreSQL", "embedded SQLite"]
Task = Literal["noop", "nap", "nap_async", "stamp"]

_HERE = Path(__file__).parent
_RIVER = "github.com/riverqueue/river"


def _pins() -> dict[str, str]:
    """Return the versions of the peers, by package."""
    lines = (_HERE / "peers.txt").read_text().split()
    return {re.sub(r"\[.*\]", "", name): version for name, _, version in (line.partition("==") for line in lines)}


def _river_version() -> str:
    found = re.search(rf"{re.escape(_RIVER)} v(\S+)", (_HERE / "river" / "go.mod").read_text())
    assert found is not None, "go.mod names River"
    return found[1]


def peer_packages() -> PythonPackages:
    """Return the peers' packages, as pip is to install them."""
    text = (_HERE / "peers.txt").read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return PythonPackages(name="library-peers", version=digest, requirements=text.split())


def river_program() -> GoFolder:
    """Return River's program, as Go is to build it."""
    names = ("go.mod", "go.sum", "main.go")
    files = {name: (_HERE / "river" / name).read_text() for name in names}
    return GoFolder(name="river-bench", version=_river_version(), files=files)


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """One library with one kind of store."""

    name: str
    title: str
    keeps: Keeps
    version: str
    module: str
    """The module of `programs` that runs it."""
    classes: tuple[Class, ...]
    """Those that it is measured in. One that differs in nothing is measured once, and shown in both."""
    naps: tuple[Task, ...]
    """How its tasks can nap: in threads, in coroutines, or in both."""
    each_round: bool = False
    """Whether it takes part in every round, or only in one."""
    naps_apart: bool = False
    """Whether its worker is started differently for tasks that take no time."""
    ours: bool = False
    python: bool = True


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A library in one class."""

    library: Library
    kind: Class

    @property
    def name(self) -> str:
        return f"{self.library.name}-{self.kind}"

    @property
    def durable(self) -> bool:
        return self.kind == "durable"


def _libraries() -> dict[str, Library]:
    pins = _pins()
    both: tuple[Class, ...] = ("durable", "defaults")
    threads: tuple[Task, ...] = ("nap",)
    coroutines: tuple[Task, ...] = ("nap_async",)
    either: tuple[Task, ...] = ("nap_async", "nap")
    ways: tuple[tuple[str, str, Keeps], ...] = (
        ("penstock", "Penstock", "server on SQLite"),
        ("penstock-embedded", "Penstock, embedded", "embedded SQLite"),
        ("penstock-postgres", "Penstock on PostgreSQL", "server on PostgreSQL"),
    )
    ours = [
        Library(
            name=name,
            title=title,
            keeps=keeps,
            version=penstock.__version__,
            module="penstock",
            classes=("durable",),
            naps=either,
            each_round=True,
            ours=True,
        )
        for name, title, keeps in ways
    ]
    on_redis = [
        Library(
            name=name,
            title=title,
            keeps="Redis",
            version=pins[name],
            module=name,
            classes=classes,
            naps=naps,
            each_round=name in {"celery", "dramatiq"},
            naps_apart=name in {"celery", "rq"},
        )
        for name, title, classes, naps in (
            ("celery", "Celery", both, threads),
            ("dramatiq", "Dramatiq", both, (*threads, *coroutines)),
            ("rq", "RQ", both, threads),
            ("taskiq", "Taskiq", both, either),
            ("arq", "Arq", both, coroutines),
            ("saq", "SAQ", both, either),
            ("huey", "Huey", ("defaults",), threads),  # It has no acknowledgements, so it cannot keep what it took.
        )
    ]
    on_postgres = [
        Library(
            name=name,
            title=title,
            keeps="PostgreSQL",
            version=pins.get(name) or _river_version(),
            module=name,
            classes=("durable",),
            naps=naps,
            each_round=name == "procrastinate",
            naps_apart=name != "procrastinate",
            python=name != "river",
        )
        for name, title, naps in (
            ("procrastinate", "Procrastinate", either),
            ("pgqueuer", "PgQueuer", coroutines),
            ("river", "River (Go)", coroutines),
        )
    ]
    return {library.name: library for library in (*ours, *on_redis, *on_postgres)}


LIBRARIES = _libraries()


def entries(only: list[str] | None, kinds: list[Class]) -> list[Entry]:
    """Return who takes part: of these libraries, or of all, in these classes."""
    return [
        Entry(library=library, kind=kind)
        for name, library in LIBRARIES.items()
        if only is None or name in only
        for kind in library.classes
        # What is durable as it comes is in both classes.
        if kind in kinds or library.classes == ("durable",)
    ]
