"""Shapes as XML, in the form of the Query protocol's answers."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from penstock.wire.sqs.fields import Field, Kind, fields_of

if TYPE_CHECKING:
    import msgspec

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
PROLOGUE = '<?xml version="1.0"?>'

_ESCAPED = re.compile('[&<>"\r]')
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}
# A parser reads a bare carriage return as a line feed, so it has to be escaped to arrive.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: str) -> str:
    """Write text so that every XML parser reads it back as it was; what XML cannot hold becomes U+FFFD.

    Messages hold nothing of that kind; only an error that quotes its caller may.
    """
    text = _NOT_XML.sub("\ufffd", text)
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


def element(name: str, text: str) -> str:
    """Write an element that holds text."""
    return f"<{name}>{escape(text)}</{name}>"


def enclosed(name: str, inner: str) -> str:
    """Write an element that holds elements, in the short form if there are none."""
    return f"<{name}>{inner}</{name}>" if inner else f"<{name}/>"


def content(shape: msgspec.Struct) -> str:
    """Write the fields of a shape as elements, leaving out those that are None."""
    return "".join(_write(field, getattr(shape, field.attribute)) for field in fields_of(type(shape)))


def _write(field: Field, value: Any) -> str:  # noqa: ANN401 - whatever the field holds
    if value is None:
        return ""
    name = field.flat.name
    if field.kind is Kind.LIST:
        return "".join(f"<{name}>{_inner(item)}</{name}>" for item in value)
    if field.kind is Kind.MAP:
        key, inner = field.flat.key, field.flat.value
        return "".join(
            f"<{name}>{element(key, told)}<{inner}>{_inner(item)}</{inner}></{name}>" for told, item in value.items()
        )
    return f"<{name}>{_inner(value)}</{name}>"


def _inner(value: Any) -> str:  # noqa: ANN401 - a scalar or a shape
    match value:
        case str():
            return escape(value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return content(value)
