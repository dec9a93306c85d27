"""How arguments and results become JSON and come back: checked by the types in a function's signature."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import operator
import types
import typing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from penstock.client.errors import ArgumentsInvalid, ResultInvalid, TaskInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def to_builtins(value: Any) -> Any:  # noqa: ANN401 - whatever msgspec does not know
    """Return what msgspec cannot write itself as something that it can: models of pydantic, or of its kind."""
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"a value of the type {type(value).__qualname__} cannot be written as JSON")
    return dump(mode="json", by_alias=True)


def from_builtins(kind: type, value: Any) -> Any:  # noqa: ANN401 - as above
    """Return a value as a type that msgspec does not know: as a model of pydantic, or of its kind."""
    validate = getattr(kind, "model_validate_json", None)
    # As JSON, not as Python values: a strict model takes the text of a date only from JSON.
    return value if validate is None else validate(msgspec.json.encode(value))


_encode = msgspec.json.Encoder(enc_hook=to_builtins).encode
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)
"""What is raised for a value that cannot be written, or is not of its type."""


def encode_value(value: Any) -> bytes:  # noqa: ANN401 - any value that JSON can hold
    """Write a value as JSON; raises `TypeError`, `ValueError` or the like if that would lose something."""
    written = _encode(value)
    # msgspec writes NaN and infinity as null, and the worker would get None.
    if b"null" in written and _has_nan(msgspec.to_builtins(value, enc_hook=to_builtins)):
        raise ValueError("JSON has neither NaN nor infinity")
    return written


def _has_nan(value: Any) -> bool:  # noqa: ANN401 - of builtin types
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return True
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one
    return False


def check_parameters(name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; raises `TaskInvalid` if one of them has no name to be sent by."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        raise TaskInvalid(
            f"Python does not know the parameters of {function!r}. Call it in a function of your own, for task {name}."
        ) from None
    for parameter in parameters:
        if parameter.kind not in (*_POSITIONAL, *_BY_NAME):
            raise TaskInvalid(
                f"Task {name} has a parameter {parameter}. Arguments are sent by name, so give it a name, "
                "such as a list or a dict."
            )
    return parameters


class Signature:
    """The parameters of a function as JSON: an object by their names."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        parameters = list(self._signature.parameters.values())
        hints = hints_of(name, function)
        self.names = tuple(parameter.name for parameter in parameters)
        self._positional = sum(parameter.kind in _POSITIONAL for parameter in parameters)
        # Python's own rules about what is given by position and by name are more than a struct knows.
        self._types = {parameter.name: without_errors(hints.get(parameter.name, Any)) for parameter in parameters}
        self._strict = any(parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        self._optional = any(parameter.default is not inspect.Parameter.empty for parameter in parameters)
        self.arguments = msgspec.defstruct(
            "arguments",
            [_field(parameter, self._types[parameter.name]) for parameter in parameters],
            forbid_unknown_fields=True,
            kw_only=self._strict,  # Where Python's rules count, a required parameter may follow an optional one.
        )
        try:
            self._decode = msgspec.json.Decoder(self.arguments, dec_hook=from_builtins).decode
        except TypeError as error:
            raise TaskInvalid(f"The parameters of task {name} cannot be read from JSON: {error}.") from None
        for field, kind in unknown_types(msgspec.inspect.type_info(self.arguments)):
            raise TaskInvalid(f"Parameter {field} of task {name} has the type {kind.__name__}, which JSON cannot hold.")

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Write arguments as a payload; raises `ArgumentsInvalid` if a worker could not call the function with them."""
        try:
            if self._strict:
                made = self.arguments(**self._signature.bind(*args, **kwargs).arguments)
            else:
                made = self.arguments(*args, **kwargs)
            payload = encode_value(made)
        except _WRONG as error:
            raise self._refusal(args, kwargs, error) from None
        self.check(payload)
        return payload

    def encode_without(self, missing: str, args: tuple[Any, ...]) -> bytes:
        """Write the first arguments of a call whose argument `missing` is not known yet; raises `ArgumentsInvalid`."""
        known = {name: value for name, value in zip(self.names, args, strict=False) if name != missing}
        partial = msgspec.defstruct(
            "arguments",
            [(name, self._types[name] | UnsetType if self._types[name] is not Any else Any, UNSET) for name in known],
        )
        try:
            payload = encode_value(partial(**known))
            msgspec.json.decode(payload, type=partial, dec_hook=from_builtins)
        except _WRONG as error:
            raise ArgumentsInvalid(f"Task {self._name} does not take these arguments: {error}.") from None
        for parameter in self._signature.parameters.values():
            if parameter.default is inspect.Parameter.empty and parameter.name not in (*known, missing):
                raise ArgumentsInvalid(f"Task {self._name} needs an argument {parameter.name}, which nobody gives it.")
        return payload

    def check(self, payload: bytes) -> None:
        """Raise `ArgumentsInvalid` unless the function can be called with this payload."""
        self.decode(payload)

    def decode(self, payload: bytes | msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Read a payload as what the function is called with; raises `ArgumentsInvalid`."""
        try:
            values = msgspec.structs.astuple(self._decode(payload))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ArgumentsInvalid(f"Task {self._name} does not take these arguments: {error}.") from None
        if self._optional and any(value is UNSET for value in values):
            return self._without_defaults(values)
        positional = self._positional
        if positional == len(values):
            return values, {}
        return values[:positional], dict(zip(self.names[positional:], values[positional:], strict=True))

    def named(self, payload: bytes | msgspec.Raw) -> dict[str, Any]:
        """Read a payload as arguments by name, defaults included; raises `ArgumentsInvalid`."""
        args, kwargs = self.decode(payload)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def bind_some(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return some of the arguments by name; raises `TypeError` for one that the function does not have."""
        return self._signature.bind_partial(*args, **kwargs).arguments

    def argument(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - of any type
        """Return one of the arguments that `decode` returned."""
        return kwargs[name] if name in kwargs else args[self.names.index(name)]

    def _without_defaults(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Leave out what was not given, so that the function's own defaults apply."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for place, (name, value) in enumerate(zip(self.names, values, strict=True)):
            if value is UNSET:
                continue
            if place < self._positional and place == len(args):
                args.append(value)
            else:
                kwargs[name] = value
        return tuple(args), kwargs

    def _refusal(self, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> ArgumentsInvalid:
        """Say which argument is wrong, in Python's own words if the call is."""
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as wrong:
            return ArgumentsInvalid(f"Wrong arguments for task {self._name}{self._signature}: {wrong}.")
        for name, value in bound.items():
            try:
                encode_value(value)
            except _WRONG as wrong:
                return ArgumentsInvalid(f"Argument {name} of task {self._name} cannot be sent: {wrong}.")
        return ArgumentsInvalid(f"The arguments of task {self._name} cannot be sent: {error}.")


class Result:
    """What a function returns, as JSON."""

    def __init__(self, name: str, kind: Any) -> None:  # noqa: ANN401 - any type, as annotations are
        self._name = name
        self._plain = kind is Any
        try:
            self._decode = msgspec.json.Decoder(kind, dec_hook=from_builtins).decode
        except TypeError as error:
            raise TaskInvalid(f"The result of task {name} cannot be read from JSON: {error}.") from None
        for _, unknown in unknown_types(msgspec.inspect.type_info(kind)):
            raise TaskInvalid(f"Task {name} returns the type {unknown.__name__}, which JSON cannot hold.")
        try:
            self._none_fits = self._decode(b"null") is None
        except msgspec.ValidationError:
            self._none_fits = False

    @classmethod
    def of(cls, name: str, function: Callable[..., Any]) -> Result:
        """Return that of a function."""
        return cls(name, hints_of(name, function).get("return", Any))

    def encode(self, value: Any) -> bytes:  # noqa: ANN401 - whatever the function returned
        """Write a result; raises `ResultInvalid` if it cannot be written, or is not of the annotated type."""
        if value is None and self._none_fits:
            return b"null"
        try:
            written = encode_value(value)
            if not self._plain:
                self._decode(written)
        except _WRONG as error:
            raise ResultInvalid(f"The result of task {self._name} does not fit its type: {error}.") from None
        return written

    def decode(self, written: bytes | msgspec.Raw) -> Any:  # noqa: ANN401 - of the annotated type
        """Read a result; raises `ResultInvalid`."""
        try:
            return self._decode(written)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ResultInvalid(f"The result of task {self._name} does not fit its type: {error}.") from None


def hints_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function; raises `TaskInvalid` if they mean nothing at run time."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError) as error:
        raise TaskInvalid(
            f"The annotations of task {name} name something that its module does not have at run time: {error}."
        ) from None
    except (SyntaxError, TypeError) as error:
        raise TaskInvalid(f"The annotations of task {name} are no types: {error}.") from None


def without_errors(kind: Any) -> Any:  # noqa: ANN401 - any type, as annotations are
    """Return a type without the exceptions that a union in it, or in its arguments, names: JSON holds none of these.

    A batch task returns them for items that failed, and a continuation takes them for jobs that did.
    """
    origin: Any = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        kept = [one for one in arguments if not (isinstance(one, type) and issubclass(one, BaseException))]
        return functools.reduce(operator.or_, kept) if kept else Any
    if origin in {list, tuple, collections.abc.Sequence}:
        made = tuple(without_errors(one) for one in arguments)
        return kind if made == arguments else origin[made]
    return kind


def _field(parameter: inspect.Parameter, kind: Any) -> Any:  # noqa: ANN401 - as `defstruct` takes it
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, kind)
    return (parameter.name, kind | UnsetType if kind is not Any else Any, UNSET)


def unknown_types(info: msgspec.inspect.Type, field: str = "") -> Iterator[tuple[str, type]]:
    """Yield types that cannot be made of JSON, each with the field that it is in."""
    seen: set[int] = set()
    waiting = [(field, info)]
    while waiting:
        field, one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, msgspec.inspect.CustomType) and not hasattr(one.cls, "model_validate"):
            yield field, one.cls
        waiting += [(field or inner.name, inner.type) for inner in getattr(one, "fields", ())]
        single = [getattr(one, name, None) for name in ("item_type", "key_type", "value_type", "type")]
        several = [inner for name in ("types", "item_types") for inner in getattr(one, name, ())]
        waiting += [(field, inner) for inner in (*single, *several) if isinstance(inner, msgspec.inspect.Type)]
