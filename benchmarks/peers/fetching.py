"""Fetches peers into a cache, by name and version, with the tools of their languages as they are set up here."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import msgspec

from benchmarks.errors import ServerUnavailable

FETCH_SECONDS_MAX = 600.0
"""How long one step may take, for all that it downloads."""

_COMPLETE = "complete"
_REASON_CHARS = 400


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One command, and what it adds to the environment."""

    command: list[str]
    settings: dict[str, str] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Files to be written into a new folder, and the commands to be run in it."""

    tool: str
    files: dict[str, str] = {}
    steps: list[Step]


class MavenLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A library of the Java world with all that it depends on; it ends up in `lib`."""

    group: str
    artifact: str
    version: str

    @property
    def label(self) -> str:
        return f"{self.artifact}-{self.version}"

    def plan(self, home: Path) -> Plan:
        pom = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>peer</groupId>
  <artifactId>peer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>{self.group}</groupId>
      <artifactId>{self.artifact}</artifactId>
      <version>{self.version}</version>
    </dependency>
  </dependencies>
</project>
"""
        command = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={home / 'lib'}", f"-Dmaven.repo.local={home.parent / 'maven'}"]
        return Plan(tool="mvn", files={"pom.xml": pom}, steps=[Step(command=command)])


class GoProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program of a Go module; it ends up as `program`.

    It is built from a module of its own that requires it: `go install` asks for every version there is, which not
    every proxy tells.
    """

    module: str
    package: str
    version: str

    @property
    def label(self) -> str:
        return f"{self.module.rpartition('/')[2]}-{self.version}"

    def plan(self, home: Path) -> Plan:
        command = ["go", "build", "-o", "program", f"{self.module}/{self.package}"]
        return Plan(
            tool="go",
            files={"go.mod": f"module peer\n\ngo 1.18\n\nrequire {self.module} {self.version}\n"},
            steps=[Step(command=command, settings=_go_settings(home))],
        )


class GoFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A Go program from files of our own, with its `go.mod` and `go.sum`; it ends up as `program`."""

    name: str
    version: str
    files: dict[str, str]

    @property
    def label(self) -> str:
        return f"{self.name}-{self.version}"

    def plan(self, home: Path) -> Plan:
        command = ["go", "build", "-o", "program", "."]
        return Plan(tool="go", files=self.files, steps=[Step(command=command, settings=_go_settings(home))])


class PythonPackages(msgspec.Struct, frozen=True, kw_only=True):
    """Python packages in a virtual environment of their own; its programs end up in `bin`."""

    name: str
    version: str
    requirements: list[str]

    @property
    def label(self) -> str:
        return f"{self.name}-{self.version}"

    def plan(self, home: Path) -> Plan:
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        return Plan(
            tool=sys.executable,
            steps=[
                Step(command=[sys.executable, "-m", "venv", str(home)]),
                Step(command=[*pip, *self.requirements]),
            ],
        )


Source: TypeAlias = MavenLibrary | GoProgram | GoFolder | PythonPackages


def _go_settings(home: Path) -> dict[str, str]:
    """Keep what Go downloads and compiles in the cache."""
    return {
        "GOFLAGS": "-mod=mod -modcacherw",
        "GOPATH": str(home.parent / "go"),
        "GOCACHE": str(home.parent / "go-build"),
    }


def default_cache() -> Path:
    """Return where peers are kept from one run to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "peers"


def fetch(source: Source, cache: Path) -> Path:
    """Return the folder that holds what is asked for, after fetching it if it is not there, whole and the same."""
    home = cache.absolute() / source.label
    plan = source.plan(home)
    # What it was made from; the path of this Python may differ, its version may not.
    wanted = msgspec.json.encode((source, platform.python_version()))
    complete = home / _COMPLETE
    if complete.exists() and complete.read_bytes() == wanted:
        return home
    if shutil.which(plan.tool) is None:
        raise ServerUnavailable(f"{source.label} cannot be fetched: {plan.tool} is not installed")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    for name, text in plan.files.items():
        (home / name).write_text(text)
    for step in plan.steps:
        _run(step, home, source.label)
    complete.write_bytes(wanted)
    return home


def _run(step: Step, home: Path, label: str) -> None:
    process = subprocess.Popen(
        step.command,
        cwd=home,
        env=os.environ | step.settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=FETCH_SECONDS_MAX)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # Its own session: the tool and what it started.
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise ServerUnavailable(f"{label} cannot be fetched within {FETCH_SECONDS_MAX:g} s") from None
        raise
    if process.returncode:
        said = " ".join(output.decode(errors="replace").split())[-_REASON_CHARS:]
        raise ServerUnavailable(f"{label} cannot be fetched: {said or f'status {process.returncode}'}")
