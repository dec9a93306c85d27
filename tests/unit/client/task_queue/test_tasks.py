from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.client.task_queue.cost import sqs_cost
from penstock.client.task_queue.tasks import MESSAGE_BYTES_MAX, SentTask, group_of, slices, tasks_to_send

NAMES = st.text(min_size=1, max_size=200)
ALLOWED = re.compile(r"""[A-Za-z0-9!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}""")


def sent(size_bytes: int) -> SentTask:
    return SentTask("t", {"MessageBody": "x" * size_bytes, "MessageAttributes": {}})


@pytest.mark.parametrize(("entity", "task"), [("doc-123", "yearBuilt"), ("17", "roof_type"), ("a-b-c", "d")])
def test_a_plain_group_is_entity_and_task(entity: str, task: str) -> None:
    assert group_of(entity, task) == f"{entity}-{task}"


@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
def test_two_tasks_share_a_group_only_if_they_are_the_same(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (group_of(*one) == group_of(*other)) == (one == other)
    assert ALLOWED.fullmatch(group_of(*one))


@given(st.lists(st.sampled_from("ab-"), min_size=3, max_size=8).map("".join), st.data())
def test_no_split_of_one_text_shares_a_group_with_another(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(text) - 1), min_size=2, max_size=2, unique=True))
    one, other = ((text[:cut], text[cut:]) for cut in cuts)
    assert group_of(*one) != group_of(*other)


def test_a_task_is_the_same_whatever_the_order_of_its_keys() -> None:
    ids = {
        tasks_to_send("doc", [{"name": "a", "config": config}], metadata, wall_ms=wall_ms)[0].entry[
            "MessageDeduplicationId"
        ]
        for config, metadata, wall_ms in (({"x": 1, "y": 2}, {}, 0), ({"y": 2, "x": 1}, None, 5_000))
    }
    assert len(ids) == 1


@given(st.lists(st.integers(0, MESSAGE_BYTES_MAX // 3), max_size=40))
def test_every_part_fits_into_a_call_and_none_is_left_out(sizes: list[int]) -> None:
    parts = slices([sent(size) for size in sizes], 10)
    assert [task.size_bytes for part in parts for task in part] == sizes
    assert all(0 < len(part) <= 10 and sum(task.size_bytes for task in part) <= MESSAGE_BYTES_MAX for part in parts)


def test_an_idle_consumer_costs_more_than_the_work() -> None:
    """40 tasks for each of 1,000 entities, as in the usual estimate of two cents, which counts only sends."""
    cost = sqs_cost(40_000)
    assert (cost.sends, cost.receives, cost.deletes) == (4_000, 40_000, 40_000)
    assert cost.empty_receives == 518_400
    assert (cost.requests, cost.billed, cost.usd) == (602_400, 0, 0.0)
    assert sqs_cost(40_000, consumers=10, free_requests=0).usd == pytest.approx(2.634)
    assert sqs_cost(40_000, send_batch=1, consumers=0, free_requests=0).usd == pytest.approx(0.06)


def test_work_leaves_less_time_for_empty_polls() -> None:
    idle, busy = sqs_cost(40_000), sqs_cost(40_000, task_s=60)
    assert busy.empty_receives == idle.empty_receives - 40_000 * 60 // 5
    assert sqs_cost(10**9, task_s=60).empty_receives == 0
    assert sqs_cost(100, task_s=900).visibility_changes == 300
    assert sqs_cost(100, body_kib=128).requests - sqs_cost(100).requests == 10 * 19 + 100


@pytest.mark.parametrize("wrong", [{"consumers": -1}, {"wait_s": 0}, {"receives_per_message": 0.5}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        sqs_cost(1, **wrong)  # type: ignore[arg-type]
