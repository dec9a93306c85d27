"""The knobs of a scenario: what can be turned, in which range, by flag or by environment variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.lab.variables import real, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLAGS = frozenset(
    {
        "batch-size",
        "consumer-count",
        "copies",
        "count",
        "crash-window",
        "danger-count",
        "iterations",
        "poison-count",
        "poison-every",
        "poll-interval",
        "processing-delay",
        "safe-delay",
        "second-start-delay",
        "sigterm-delay",
        "slow-seconds",
        "timeout",
        "visibility-timeout",
        "visibility-wait",
    }
)
"""The knobs that are flags of `penstock lab run`. The others are set by --knob NAME=VALUE."""


class Knob(msgspec.Struct, frozen=True):
    """A number that a scenario takes. It is whole if its default is."""

    name: str
    """As its flag has it: `visibility-timeout` is --visibility-timeout, and VISIBILITY_TIMEOUT in the environment."""
    default: int | float
    does: str
    least: int | float = 1
    most: int | float = 1_000_000

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return self.name.replace("-", "_").upper()

    @property
    def flag(self) -> str:
        """The flag that sets it: one of its own, or --knob."""
        return f"--{self.name}" if self.name in FLAGS else f"--knob {self.name}"

    def words(self, value: float) -> list[str]:
        """Return the arguments of a command that set it."""
        written = str(value)
        return [self.flag, written] if self.name in FLAGS else ["--knob", f"{self.name}={written}"]

    def read(self, text: str, said: str) -> int | float:
        """Read a value that was given as `said`; raises `BadValue`."""
        if isinstance(self.default, int):
            return whole(said, text, least=int(self.least), most=int(self.most))
        return real(said, text, least=float(self.least), most=float(self.most))


class Knobs(msgspec.Struct, frozen=True):
    """The values of a scenario's knobs."""

    values: dict[str, int | float]

    def whole(self, name: str) -> int:
        """Return a value that is whole."""
        value = self.values[name]
        assert isinstance(value, int), f"{name} is not whole"
        return value

    def real(self, name: str) -> float:
        """Return a value."""
        return float(self.values[name])


def turned(knobs: Sequence[Knob], flags: Mapping[str, str], environment: Mapping[str, str]) -> Knobs:
    """Return the values of knobs: flags override the environment, which overrides defaults. Raises `BadValue`."""
    values: dict[str, int | float] = {}
    for knob in knobs:
        if knob.name in flags:
            values[knob.name] = knob.read(flags[knob.name], knob.flag)
        elif environment.get(knob.variable):
            values[knob.name] = knob.read(environment[knob.variable], knob.variable)
        else:
            values[knob.name] = knob.default
    return Knobs(values)
