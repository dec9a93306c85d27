"""What may happen to a store at random: which calls, how often each, and with what."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS

Call = tuple[str, dict[str, Any]]
"""The name of a method of the machine, and its arguments."""

LEASE_MS = 30_000

queues = st.sampled_from((0, 0, 0, 2, 2, 2, 2, 1, 3))
"""The working queue and its dead-letter queue: standard (0, 1) and FIFO (2, 3)."""
picks = st.integers(0, 2**16)
some_picks = st.lists(picks, min_size=1, max_size=4)
lease_times = st.sampled_from((LEASE_MS, LEASE_MS, 10 * MINUTE_MS, HOUR_MS, 1_000, 1, 0))
change_times = st.sampled_from((0, 0, 1_000, LEASE_MS, HOUR_MS, 12 * HOUR_MS))
short_times = st.sampled_from((1, 200, 1_000, LEASE_MS - 1, LEASE_MS, LEASE_MS, MINUTE_MS))
long_times = st.sampled_from(
    (5 * MINUTE_MS - 1, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 12 * HOUR_MS, DAY_MS, 4 * DAY_MS, 14 * DAY_MS)
)
retentions = st.sampled_from((345_600, 60, 3_600, 1_209_600))
attempts = st.sampled_from(("none", "none", "new", "again"))
receives = st.sampled_from(("none", "none", "new", "new", "again", "again", "late"))
entries = st.fixed_dictionaries(
    {
        "group": st.sampled_from(("a", "a", "a", "b", None)),
        "delay_ms": st.sampled_from((0, 0, 0, 0, 0, 0, 1, 5_000, 15 * MINUTE_MS)),
        "deduplication": st.sampled_from((None, None, None, "d0", "d1")),
        "refused": st.sampled_from((False, False, False, False, False, False, True)),
    }
)

KINDS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "send": (
        6,
        {"to": queues, "batch": st.lists(entries, min_size=1, max_size=6), "attempt": attempts, "pick": picks},
    ),
    "receive": (
        9,
        {
            "from_": queues,
            "count": st.integers(1, 10),
            "lease_ms": lease_times,
            "attempt": receives,
            "pick": picks,
        },
    ),
    "receive_and_vanish": (3, {"from_": queues, "count": st.integers(1, 10), "times": st.integers(1, 3)}),
    "settle_one_of_many": (
        4,
        {
            "from_": queues,
            "how": st.sampled_from(("release", "change_visibility", "delete")),
            "place": st.sampled_from((0, -1)),
            "retried": st.booleans(),
        },
    ),
    "settle_by_older_receipts": (
        2,
        {
            "from_": queues,
            "how": st.sampled_from(("release", "change_visibility", "change_visibility", "delete")),
            "lease_ms": change_times,
        },
    ),
    "delete": (3, {"chosen": some_picks}),
    "change_visibility": (3, {"chosen": some_picks, "lease_ms": change_times}),
    "release": (2, {"chosen": some_picks}),
    "reset_and_retry": (2, {"from_": queues, "lease_ms": lease_times, "pause_ms": st.sampled_from((0, 0, 1, 1_000))}),
    "connection_ends": (2, {"pick": picks}),
    "time_passes": (5, {"ms": short_times}),
    "much_time_passes": (1, {"ms": long_times}),
    "a_retention_passes": (1, {"which": queues}),
    "ask_for_an_outcome": (1, {"pick": picks}),
    "restart": (1, {}),
    "sweep": (1, {}),
    "purge": (1, {"which": queues}),
    "set_attributes": (
        2,
        {
            "which": queues,
            "after": st.sampled_from((1, 2, 3, None)),
            "retention_s": retentions,
            "stale": st.sampled_from((False, False, True)),
        },
    ),
    "start_move": (
        2,
        {"fifo": st.booleans(), "back": st.booleans(), "rate": st.sampled_from((None, None, 1, 10, 40, 500))},
    ),
    "cancel_move": (1, {"pick": picks}),
    "advance_moves": (3, {"times": st.sampled_from((1, 1, 2, 5)), "on_time": st.booleans()}),
}
"""How often each call is made against the others, and what it is made with."""


def weighted(kinds: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]]) -> st.SearchStrategy[Call]:
    """Choose calls by their weight."""
    names = [name for name, (weight, _) in kinds.items() for _ in range(weight)]
    return st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), st.fixed_dictionaries(kinds[name][1])))


calls = weighted(KINDS)
