"""Flags that are whole numbers: cyclopts would round 1.5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import cyclopts
from cyclopts import Parameter


def _whole(kind: type, tokens: Sequence[cyclopts.Token]) -> int:
    try:
        return int(tokens[0].value)
    except ValueError:
        raise cyclopts.CoercionError(token=tokens[0], target_type=kind) from None


Whole = Annotated[int, Parameter(converter=_whole)]
