"""Fields of a log line as text: `name=value`, each in one piece and on one line, whatever a value holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def log_fields(fields: Mapping[str, object]) -> str:
    """Return fields as logfmt has them."""
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _value(value: object) -> str:
    """Write a value so that it cannot be mistaken for two, nor for a line of its own."""
    text = str(value)
    if text.isprintable() and text and not any(character in text for character in ' ="\\'):
        return text
    # Letters of any language stay as they are; what cannot be seen is escaped.
    return json.dumps(text, ensure_ascii=not text.isprintable())
