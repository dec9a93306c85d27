"""What `verify` answers: whether the effect of an attempt that did not complete has happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from penstock.client.idempotency.results import ResultCodec

T = TypeVar("T")


class Happened(msgspec.Struct, Generic[T], frozen=True):
    """The effect has happened, with this result. `verify` needs it only where the result is None, False or True."""

    result: T | None = None


def read_answer(answer: Any, codec: ResultCodec) -> Happened[Any] | None:  # noqa: ANN401 - of the function's type
    """Return what `verify` means: None and False say no; True says yes for a function that returns None."""
    if isinstance(answer, Happened):
        return answer
    if answer is None or answer is False:
        return None
    if answer is True and codec.is_none:
        return Happened(None)
    return Happened(answer)
