"""When an attempt ends here: by its timeout, or by its lease if that is not extended."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from penstock.client.worker.attempt import Attempt
from penstock.wire.jobs.answers import OfferView

NOW = 1_000.0


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the time is, for this test to change."""
    now = [NOW]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def begun(*, lease_ms: int, timeout_ms: int) -> Attempt:
    offer = OfferView(
        token="t",
        id="j",
        queue="q",
        task="t",
        payload=msgspec.Raw(b"{}"),
        attempt=1,
        enqueued_at_ms=0,
        accept_by_ms=0,
        accept_in_ms=0,
        lease_ms=lease_ms,
        timeout_ms=timeout_ms,
    )
    nothing: Any = None
    attempt = Attempt(offer, nothing, nothing, nothing)
    attempt.begin(NOW)
    return attempt


@pytest.mark.parametrize("timeout_ms", [100, 1_000, 1_001, 5_000, 30_000])
def test_what_has_no_longer_lease_than_timeout_ends_by_its_timeout(timeout_ms: int) -> None:
    """The server cuts leases short at the timeout. Their end is not taken for a lost connection."""
    attempt = begun(lease_ms=timeout_ms, timeout_ms=timeout_ms)
    assert NOW < attempt.deadline < attempt.lease_until == NOW + timeout_ms / 1_000
    assert attempt.times_out


@pytest.mark.parametrize(("answered_after_s", "until"), [(0.0, NOW + 3), (0.03, NOW + 2.97), (0.3, NOW + 2.58)])
def test_a_lease_is_held_until_the_timeout_only_if_it_is_sure_to_last(
    now: list[float], answered_after_s: float, until: float
) -> None:
    attempt = begun(lease_ms=2_000, timeout_ms=3_000)
    assert (attempt.lease_until, attempt.times_out) == (NOW + 1.8, False)
    # It was extended at NOW + 1.5 + answered_after_s, until its time is up.
    now[0] = NOW + 1.5 + answered_after_s
    attempt.extend(NOW + 1.5, 1_500 - round(1_000 * answered_after_s))
    assert attempt.lease_until == pytest.approx(until)
    assert attempt.times_out


@pytest.mark.parametrize(("lease_ms", "sent_s", "handled_s"), [(10_000, 0, 12), (10_000, 5, 15.5), (2_000, 12.5, 13)])
def test_no_answer_makes_a_lease_last_longer_than_it_is_sure_to(
    now: list[float], lease_ms: int, sent_s: float, handled_s: float
) -> None:
    """A process that was stopped for a while must not go on with what another worker may have by then."""
    attempt = begun(lease_ms=lease_ms, timeout_ms=15_000)
    now[0] = NOW + handled_s
    attempt.extend(NOW + sent_s, lease_ms)
    assert attempt.lease_until <= NOW + sent_s + lease_ms / 1_000
    assert attempt.times_out
    assert attempt.leased == (handled_s < sent_s + lease_ms / 1_000 * 0.9)


def test_a_lease_that_is_shorter_than_the_timeout_ends_a_little_sooner_than_on_the_server(now: list[float]) -> None:
    attempt = begun(lease_ms=30_000, timeout_ms=3_600_000)
    assert (attempt.lease_until, attempt.times_out) == (NOW + 29, False)
    now[0] = NOW + 10
    attempt.extend(NOW + 10, 5_000)
    assert (attempt.lease_until, attempt.times_out) == (NOW + 14.5, False)
