"""How the values of a call become a key: unambiguous, within a scope, and never longer than a store takes."""

from __future__ import annotations

import hashlib
import inspect
import string
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from penstock.client.errors import IdempotencyInvalid, IdempotencyKeyInvalid
from penstock.client.tasks.codec import to_builtins

KeyPart = str | int | uuid.UUID | Decimal | date
Key = KeyPart | tuple[KeyPart, ...] | list[KeyPart]

KEY_BYTES_MAX = 512
"""A longer key is cut, and ends with a digest of all of it."""

_CUT_LENGTH = 64
_sorted = msgspec.json.Encoder(enc_hook=to_builtins, order="sorted").encode
_SPECIAL = ("%", "/", ":", "~", "\x00")
"""What has a meaning in a key, or cannot be stored: escaped where it is a part of a value."""


def make_key(scopes: tuple[str, ...], given: Key) -> str:
    """Return the key of one or several values in a scope; raises `IdempotencyKeyInvalid`.

    Different values never make the same key: ("a-b", "c") is not ("a", "b-c"). A number and its text are the same.
    """
    parts = given if isinstance(given, tuple | list) else (given,)
    if not parts:
        raise IdempotencyKeyInvalid("The key has no parts.")
    scope = "/".join(escape(one) for one in scopes if one)
    text = ":".join([scope, *(escape(_text(part)) for part in parts)])
    try:
        written = text.encode()
    except UnicodeEncodeError:
        raise IdempotencyKeyInvalid(f"The key {text!r} is not valid Unicode.") from None
    if len(written) <= KEY_BYTES_MAX:
        return text
    return f"{text[:_CUT_LENGTH]}~{hashlib.sha256(written).hexdigest()}"


def escape(text: str, also: str = "") -> str:
    """Return a text without the characters that have a meaning in a key, nor those in `also`."""
    special = {*_SPECIAL, *also}
    return "".join(f"%{ord(one):02X}" if one in special else one for one in text)


def fingerprint_of(value: object) -> str:
    """Return a digest of a value, the same for the same JSON in whatever order; raises `IdempotencyKeyInvalid`."""
    try:
        written = _sorted(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise IdempotencyKeyInvalid(f"There is no fingerprint of {type(value).__qualname__}: {error}.") from None
    return hashlib.sha256(written).hexdigest()


class Fields:
    """Makes a key of fields of a payload, by their paths: `order_id`, or `order.id`. It is a key function.

    A text on the way is read as JSON, so `body.order_id` is a field of the JSON in an SQS message's body.
    """

    def __init__(self, *names: str) -> None:
        self.paths = [path.strip().split(".") for name in names for path in name.split(",")]
        if not self.paths or not all(part for path in self.paths for part in path):
            raise IdempotencyInvalid(f'Fields are named like "order_id,action" or "order.id", not {names!r}.')

    def __call__(self, payload: object, *_: object, **__: object) -> tuple[KeyPart, ...]:
        """Return the fields of a payload, a mapping, an object or JSON; raises `IdempotencyKeyInvalid`."""
        return tuple(self._find(payload, path) for path in self.paths)

    @staticmethod
    def _find(payload: object, path: list[str]) -> Any:  # noqa: ANN401 - checked where the key is made
        found = payload
        for name in path:
            try:
                if isinstance(found, str | bytes):
                    found = msgspec.json.decode(found)
                found = found[name] if isinstance(found, Mapping) else getattr(found, name)
            except (KeyError, AttributeError, msgspec.DecodeError):
                raise IdempotencyKeyInvalid(f"The payload has no {'.'.join(path)}, which the key is made of.") from None
        return found


class Template:
    """Makes a key of a call's arguments as a text says: `"{order_id}-{action}"`, or `"{message[order_id]}"`."""

    def __init__(self, template: str, function: Callable[..., Any]) -> None:
        self._template = template
        self._signature = inspect.signature(function)
        self._formatter = string.Formatter()
        try:
            self._parts = list(self._formatter.parse(template))
        except ValueError as error:
            raise IdempotencyInvalid(f"The key {template!r} is no template: {error}.") from None
        # A value is written without the character that follows it in the template, so that its end is clear.
        self._ends = [text[:1] for text, *_ in self._parts[1:]] + [""]
        fields = [(text, name) for text, name, *_ in self._parts if name is not None]
        if not fields:
            raise IdempotencyInvalid(f"The key {template!r} is the same for every call: it names no parameter.")
        if any(not text for text, _ in fields[1:]):
            raise IdempotencyInvalid(f"Two fields of the key {template!r} have nothing between them.")
        if any(spec or conversion for _, _, spec, conversion in self._parts):
            raise IdempotencyInvalid(f"The key {template!r} has a format or a conversion, which keys do without.")
        known = self._signature.parameters
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
        for _, name in fields:
            first = name.replace("[", ".").split(".", 1)[0]
            if first not in known and not takes_any:
                raise IdempotencyInvalid(f"The key {template!r} names {first!r}, which is no parameter.")

    def __call__(self, *args: object, **kwargs: object) -> str:
        """Return the text for a call; raises `IdempotencyKeyInvalid`, and `TypeError` for a wrong call."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                values |= values.pop(name)
        made = []
        for (text, field, *_), end in zip(self._parts, self._ends, strict=True):
            made.append(text)
            if field is not None:
                made.append(escape(_text(self._value(field, values)), end))
        return "".join(made)

    def _value(self, name: str, values: dict[str, object]) -> Any:  # noqa: ANN401 - checked where it is written
        try:
            return self._formatter.get_field(name, (), values)[0]
        except (KeyError, IndexError, AttributeError, TypeError) as error:
            raise IdempotencyKeyInvalid(
                f"The call has no {name}, which the key {self._template!r} is made of: {error!r}."
            ) from None


def _text(part: object) -> str:
    if isinstance(part, str):
        text = str(part)
    elif isinstance(part, datetime | date):
        text = part.isoformat()
    elif isinstance(part, int | uuid.UUID | Decimal) and not isinstance(part, bool):
        text = str(part)
    elif part is None:
        raise IdempotencyKeyInvalid("A part of the key is None. Every call needs a key of its own.")
    else:
        raise IdempotencyKeyInvalid(
            f"A part of a key is a text, a whole number, a UUID, a Decimal or a date, not {type(part).__qualname__}."
        )
    if not text:
        raise IdempotencyKeyInvalid("A part of the key is an empty text.")
    return text


def scope_of(function: Callable[..., Any], scopes: tuple[str, ...]) -> str:
    """Return the scope of a function that was given none: its module and name; raises `IdempotencyInvalid`."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if name is None or module is None or "<lambda>" in name:
        raise IdempotencyInvalid(f"{function!r} has no name for its keys to be kept under: give it a scope=.")
    if module != "__main__":
        return f"{module}.{name}"
    if any(scopes):
        return str(name)
    raise IdempotencyInvalid(
        f"{name} is in __main__, which every program has: give it a scope=, for its keys to be kept under."
    )
