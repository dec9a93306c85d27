"""What a message says, and which of its fields the lab's history has."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

POISON_MARKER = "POISON"
"""What REJECT_PAYLOAD_MARKER can match in the payload of a poison message."""


def payload_of(body: str) -> dict[str, Any]:
    """Return the payload; nothing if the body is no object of JSON."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def business_key(payload: dict[str, Any], fields: Sequence[str]) -> str | None:
    """Return what a message is about, as `order_id=7,action=charge`; None if a field of that is missing."""
    if not fields or any(payload.get(field) is None for field in fields):
        return None
    return ",".join(f"{field}={payload[field]}" for field in fields)


def facts_of(payload: dict[str, Any]) -> dict[str, object]:
    """Return the fields of an event that a payload has: its id, and what orders, groups or joins it with others."""
    return {
        "body_id": _text(payload.get("id")),
        "sequence": _whole(payload.get("sequence")),
        "group": _text(payload.get("group")),
        "call": _text(payload.get("call")),
        "key": _text(payload.get("order_id")),
        "tenant": _text(payload.get("tenant")),
        "entity": _text(payload.get("entity_id")),
        "version": _whole(payload.get("version")),
        "poison": True if payload.get("poison") is True else None,
    }


def queue_name(queue_url: str) -> str:
    """Return the name of a queue by its URL."""
    return queue_url.rpartition("/")[2]


def short_receipt(receipt: str) -> str:
    """Return enough of a receipt handle to tell it from others; the handle itself would fill the page."""
    return hashlib.sha256(receipt.encode()).hexdigest()[:12]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
