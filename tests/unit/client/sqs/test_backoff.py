from __future__ import annotations

import pytest

from penstock.client.errors import ConsumerInvalid
from penstock.client.sqs.backoff import Backoff


@pytest.mark.parametrize(
    ("chance", "waits"), [(0.0, [1, 1, 2, 4, 5, 5]), (0.999, [1, 2, 4, 8, 10, 10]), (0.5, [1, 2, 3, 6, 8, 8])]
)
def test_waits_double_up_to_the_longest_and_a_part_of_them_is_random(chance: float, waits: list[int]) -> None:
    backoff = Backoff(1, 10, chance=lambda: chance)
    assert [backoff.after(count) for count in range(1, 7)] == waits


def test_no_count_is_too_large() -> None:
    assert Backoff(1, "12h", chance=lambda: 1.0).after(10**9) == 43_200


def test_none_means_at_once() -> None:
    assert Backoff(0, 0).after(3) == 0


@pytest.mark.parametrize(("first", "longest"), [(10, 5), (1, "13h")])
def test_waits_that_sqs_does_not_know_are_refused(first: float, longest: float | str) -> None:
    with pytest.raises(ConsumerInvalid):
        Backoff(first, longest)
