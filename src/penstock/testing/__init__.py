"""What tests need, ours and users': a clock that is moved by hand."""

from penstock.domain.clock import ManualClock
from penstock.domain.ids import CountedIds

__all__ = ["CountedIds", "ManualClock"]
