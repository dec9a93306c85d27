"""How a function's result is stored, and comes back as the type that the function is annotated with."""

from __future__ import annotations

import types
import typing
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.errors import IdempotencyInvalid, ResultInvalid, ResultTooLarge
from penstock.client.tasks.codec import encode_value, from_builtins, unknown_types

if TYPE_CHECKING:
    from collections.abc import Callable

RESULT_BYTES_MAX = 262_144
"""What a record keeps of a result, unless you say otherwise. An item of DynamoDB has at most 400 KB."""


class ResultCodec:
    """Writes and reads results of one type."""

    def __init__(self, name: str, kind: Any, bytes_max: int) -> None:  # noqa: ANN401 - any type, as annotations are
        kind = Any if kind is object else kind  # To who annotates, both mean that it may be anything.
        self._name = name
        self._bytes_max = bytes_max
        self._plain = kind is Any
        self.is_none = kind is None or kind is types.NoneType
        """Whether it has but one value."""
        try:
            self._decode = msgspec.json.Decoder(kind, dec_hook=from_builtins).decode
        except TypeError as error:
            raise IdempotencyInvalid(f"The result of {name} cannot be read from JSON: {error}.") from None
        for _, unknown in unknown_types(msgspec.inspect.type_info(kind)):
            raise IdempotencyInvalid(f"{name} returns the type {unknown.__name__}, which JSON cannot hold.")

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], bytes_max: int) -> ResultCodec:
        """Return that of a function; raises `IdempotencyInvalid`."""
        return cls(name, _return_type(name, function), bytes_max)

    def encode(self, value: object) -> bytes:
        """Write a result; raises `ResultInvalid` if it is not of its type or cannot be written, or `ResultTooLarge`."""
        try:
            written = encode_value(value)
            if not self._plain:
                self._decode(written)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ResultInvalid(f"The result of {self._name} does not fit its type: {error}.") from None
        if len(written) > self._bytes_max:
            raise ResultTooLarge(
                f"The result of {self._name} has {len(written)} bytes as JSON, and at most {self._bytes_max} are kept."
            )
        return written

    def decode(self, written: bytes | None) -> Any:  # noqa: ANN401 - of the annotated type
        """Read a result; raises `ResultInvalid` if it is not of its type, or was not stored."""
        if written is None:
            raise ResultInvalid(
                f"{self._name} has completed, but its result could not be stored: it was too large, or no JSON."
            )
        try:
            return self._decode(written)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ResultInvalid(f"The stored result of {self._name} does not fit its type: {error}.") from None


def _return_type(name: str, function: Callable[..., Any]) -> Any:  # noqa: ANN401 - any type, as annotations are
    found = getattr(function, "__annotations__", None) or {}
    if "return" not in found:
        return Any
    # Parameters may have types that exist for type checkers alone: only the result is read from JSON.
    only = types.SimpleNamespace(__annotations__={"return": found["return"]})
    names = getattr(function, "__globals__", {})
    try:
        return typing.get_type_hints(only, globalns=names, include_extras=True)["return"]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise IdempotencyInvalid(f"The return type of {name} means nothing at run time: {error}.") from None
