"""Correlation ids: one name for a request and all that comes of it, from its caller through the job to the worker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.domain.ids import IdSource

HEADER = "x-correlation-id"
TRACEPARENT = "traceparent"
"""Where W3C's trace context is, in requests and jobs."""
_HEADERS = (HEADER, "x-request-id")
_SOUND = re.compile(r"[!-~]{1,200}")
"""It is written to logs, headers and jobs, so it is nothing but visible ASCII."""


def correlation_id_of(headers: Mapping[str, str], ids: IdSource) -> str:
    """Return the id that a request brings, or a new one if it brings none that is fit to be written down."""
    for name in _HEADERS:
        given = headers.get(name)
        if given is not None and _SOUND.fullmatch(given):
            return given
    return ids.new_id()
