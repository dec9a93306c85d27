"""What is remembered of completed records: the most recently used, within bounds of count, bytes and time."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.idempotency.lru import RECORD_BYTES, RecentlyUsed
from penstock.client.idempotency.records import Completed

KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(st.just("put"), KEYS, st.integers(0, 800), st.sampled_from([10_000, 50, 0]))
    | st.tuples(st.just("get"), KEYS, st.just(0), st.just(0))
    | st.tuples(st.just("drop"), KEYS, st.just(0), st.just(0))
    | st.tuples(st.just("wait"), st.just(""), st.just(0), st.integers(0, 60)),
    min_size=12,
    max_size=60,
)


@given(STEPS, st.sampled_from([4, 3, 2, 1, 0]), st.sampled_from([6_000, 2_000, 1_000, 0]))
def test_it_is_a_plain_list_in_the_order_of_use(steps: list[tuple[str, str, int, int]], count: int, size: int) -> None:
    now_ms = 0
    recent = RecentlyUsed(lambda: now_ms, count, size)
    model: OrderedDict[str, tuple[Completed, int, int]] = OrderedDict()
    for verb, key, length, ms in steps:
        match verb:
            case "put":
                record = Completed(b"x" * length, 1, ms)
                recent.put(key, record)
                model.pop(key, None)
                if ms:
                    model[key] = (record, now_ms + ms, RECORD_BYTES + 1 + length)
                if RECORD_BYTES + 1 + length > size:
                    model.pop(key, None)
                while len(model) > count or sum(one[2] for one in model.values()) > size:
                    model.popitem(last=False)
            case "get":
                known = model.get(key)
                if known is not None and known[1] <= now_ms:
                    del model[key]
                    known = None
                assert recent.get(key) == (None if known is None else known[0])
                if known is not None:
                    model.move_to_end(key)
            case "drop":
                recent.drop(key)
                model.pop(key, None)
            case _:
                now_ms += ms
        assert list(recent) == list(model)
        assert len(recent) == len(model) <= count
        assert recent.used_bytes == sum(one[2] for one in model.values()) <= size
