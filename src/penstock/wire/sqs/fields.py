"""How the fields of a shape are laid out in the Query protocol, read once from the shapes themselves."""

from __future__ import annotations

import enum
import functools
import types
import typing

import msgspec

from penstock.wire.sqs.shapes import Flat


class Kind(enum.Enum):
    """What a field holds."""

    SCALAR = enum.auto()
    LIST = enum.auto()
    MAP = enum.auto()


class Field(msgspec.Struct, frozen=True):
    """One field: its attribute in Python, its names in JSON and in the Query protocol, and what it holds.

    `shape` is what the items or values are, where they are no scalars.
    """

    attribute: str
    json_name: str
    kind: Kind
    flat: Flat
    shape: type[msgspec.Struct] | None


@functools.cache
def fields_of(shape: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Tell the fields of a shape, in their order."""
    hints = typing.get_type_hints(shape, include_extras=True)
    return tuple(_field(field, hints[field.name]) for field in msgspec.structs.fields(shape))


def _field(field: msgspec.structs.FieldInfo, hint: object) -> Field:
    flat = next((note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Flat)), None)
    if flat is None:
        return Field(field.name, field.encode_name, Kind.SCALAR, Flat(field.encode_name), None)
    whole = _without_none(typing.get_args(hint)[0])
    item = typing.get_args(whole)[-1]
    kind = Kind.MAP if typing.get_origin(whole) is dict else Kind.LIST
    nested = isinstance(item, type) and issubclass(item, msgspec.Struct)
    return Field(field.name, field.encode_name, kind, flat, item if nested else None)


def _without_none(hint: object) -> object:
    if typing.get_origin(hint) is types.UnionType or typing.get_origin(hint) is typing.Union:
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not types.NoneType)
    return hint
