"""What the command line says about a worker, and the values it is written in."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.cli.apps import find_app, split
from penstock.cli.failures import USAGE, Failure
from penstock.cli.terminal.colours import ColorChoice

if TYPE_CHECKING:
    from penstock.client.app import Penstock

LogFormat = Literal["console", "logfmt", "json"]

SLOTS_DEFAULT = 10
SLOTS_MAX = 500
PROCESSES_MAX = 256
GRACE_S = 25.0
RELOAD_GRACE_S = 2.0
"""While you edit, nobody wants to wait for the old code."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PORT_MAX = 65_535


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, or several processes of it."""

    target: str
    name: str
    queues: dict[str, int] | None = None
    grace_s: float = GRACE_S
    processes: int = 1
    max_jobs: int | None = None
    max_rss: int | None = None
    imports: tuple[str, ...] = ()
    health: str | None = None
    reload: bool = False
    status: bool = True
    verbose: int = 0
    log_format: LogFormat = "console"
    color: ColorChoice = "auto"

    def find_app(self) -> Penstock:
        """Import the app and its tasks; raises `Failure`."""
        return find_app(self.target, self.imports)

    def one_process(self, number: int | None = None) -> WorkerSettings:
        """Return the settings of one process of this worker, the only one or one of several, from 1 on."""
        if number is None:
            return msgspec.structs.replace(self, processes=1, reload=False)
        return msgspec.structs.replace(
            self,
            name=f"{self.name}-{number}",
            processes=1,
            reload=False,
            health=self.health and _next_port(self.health, number - 1),
            status=False,  # Several live lines cannot share the foot of a terminal.
        )

    def arguments(self) -> list[str]:
        """Return these settings as they are written on the command line."""
        given = ["worker", self.target, "--name", self.name, "--grace", f"{self.grace_s}s"]
        for queue, slots in (self.queues or {}).items():
            given += ["--queue", f"{queue}:{slots}"]
        for module in self.imports:
            given += ["--import", module]
        numbers = {"--processes": self.processes, "--max-jobs": self.max_jobs, "--max-rss": self.max_rss}
        for flag, value in numbers.items():
            given += [] if value is None else [flag, str(value)]
        given += [] if self.health is None else ["--health", self.health]
        given += ["--reload"] if self.reload else []
        given += [] if self.status else ["--no-status"]
        given += ["--verbose"] * self.verbose
        return [*given, "--log-format", self.log_format, "--color", self.color]


def new_name(target: str) -> str:
    """Return a name for a worker of this app: its package, and what tells it from other workers."""
    module, _ = split(target)
    return f"{module.partition('.')[0]}-{secrets.token_hex(2)}"


def read_queues(given: Iterable[str]) -> dict[str, int] | None:
    """Read `docs:10` and `mail`; None if there is nothing; raises `Failure`."""
    queues: dict[str, int] = {}
    for text in given:
        name, colon, slots = text.rpartition(":") if ":" in text else (text, "", "")
        if not name or (colon and not (slots.isascii() and slots.isdigit() and 1 <= int(slots) <= SLOTS_MAX)):
            raise Failure(
                f"--queue is NAME or NAME:SLOTS with 1 to {SLOTS_MAX} slots, not {text}.",
                hint=f"--queue {name or 'docs'}:{SLOTS_DEFAULT}",
                exit_code=USAGE,
            )
        if name in queues:
            raise Failure(f"--queue names {name} twice.", exit_code=USAGE)
        queues[name] = int(slots) if colon else SLOTS_DEFAULT
    return queues or None


def read_duration(text: str, flag: str) -> float:
    """Read `25s` or `1m30s` in seconds; raises `Failure`."""
    from penstock.client.durations import seconds

    try:
        return seconds(text)
    except ValueError:
        raise Failure(
            f"{flag} is a duration, such as 500ms, 25s or 5m, not {text}.", hint=f"{flag} 25s", exit_code=USAGE
        ) from None


def read_size(text: str, flag: str) -> int:
    """Read `1G` or `512M` in bytes; raises `Failure`."""
    matched = _SIZE.fullmatch(text.strip())
    size = int(float(matched[1]) * _UNITS[matched[2].upper()]) if matched else 0
    if size < 1:
        raise Failure(f"{flag} is a size, such as 512M or 1G, not {text}.", hint=f"{flag} 1G", exit_code=USAGE)
    return size


def read_health(text: str, processes: int) -> str:
    """Check `127.0.0.1:8081`, from which on each process has a port of its own; raises `Failure`."""
    _, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise Failure(f"--health is HOST:PORT, not {text}.", hint="--health 127.0.0.1:8081", exit_code=USAGE)
    if int(port) + processes - 1 > _PORT_MAX:
        raise Failure(f"There are not {processes} ports from {port} on.", exit_code=USAGE)
    return text


def read_count(value: int | None, flag: str, most: int | None = None) -> int | None:
    """Check a number that is at least one; raises `Failure`."""
    if value is not None and (value < 1 or (most is not None and value > most)):
        limits = "at least 1" if most is None else f"from 1 to {most}"
        raise Failure(f"{flag} is {limits}, not {value}.", exit_code=USAGE)
    return value


def _next_port(address: str, by: int) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + by}" if int(port) else address
