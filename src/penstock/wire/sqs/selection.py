"""Which attributes a receive asks for: all, by name, or by the beginning of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value = TypeVar("Value")

_EVERYTHING = frozenset({"All", ".*", "*"})
_PREFIX_MARK = ".*"


class Selection(msgspec.Struct, frozen=True):
    """Some names. A prefix is whatever stands before `.*`: `bar.*` also selects `barn`, as SQS does."""

    everything: bool = False
    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Read what a client asks for."""
        asked = frozenset(names)
        if asked & _EVERYTHING:
            return cls(everything=True)
        prefixes = tuple(name[: -len(_PREFIX_MARK)] for name in asked if name.endswith(_PREFIX_MARK))
        return cls(names=asked, prefixes=prefixes)

    def __bool__(self) -> bool:
        """Tell whether anything may be selected at all."""
        return self.everything or bool(self.names)

    def __contains__(self, name: str) -> bool:
        """Tell whether `name` is selected."""
        return self.everything or name in self.names or (bool(self.prefixes) and name.startswith(self.prefixes))

    def choose(self, attributes: Mapping[str, Value]) -> dict[str, Value]:
        """Keep what is selected."""
        if self.everything:
            return dict(attributes)
        return {name: value for name, value in attributes.items() if name in self}
