"""Positions: partition, lane and sequence number of a message in one integer, which is also its place on disk."""

from __future__ import annotations

_SEQUENCE_BITS = 42
_LANE_BITS = 1
_PARTITION_SHIFT = _SEQUENCE_BITS + _LANE_BITS
_PARTITION_BITS = 63 - _PARTITION_SHIFT

SEQUENCE_MAX = (1 << _SEQUENCE_BITS) - 1
"""So many messages a queue can ever take: at 10,000 a second, those of 13 years."""

PARTITION_MAX = (1 << _PARTITION_BITS) - 1
"""So many partitions, queues and what the sweeper has yet to clear, there can be at once."""

TRACKED = 1 << _SEQUENCE_BITS
"""The lane of messages with a delivery from the start: delayed, grouped, or dead elsewhere. Fresh ones have 0."""


def first_position(partition: int) -> int:
    """Give the position below all messages of a partition; no message has it, as sequence numbers start at 1."""
    return partition << _PARTITION_SHIFT


def first_tracked_position(partition: int) -> int:
    """Give the position between the fresh and the tracked messages of a partition."""
    return partition << _PARTITION_SHIFT | TRACKED


def end_position(partition: int) -> int:
    """Give the last position that a message of a partition can have."""
    return (partition << _PARTITION_SHIFT) + (1 << _PARTITION_SHIFT) - 1


def sequence_of(position: int) -> int:
    """Tell a message's sequence number."""
    return position & SEQUENCE_MAX
