"""Where instants stand in a picture: on an even scale, with gaps for idle time, or counted from the send."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from penstock.lab.checkers.evidence import lateness
from penstock.lab.report.pictures import DRAWN
from penstock.lab.report.scene import GAP, Scene, scenes
from tests.support.lab.runs import run_of, script_of


def scene(scenario: str = "crash") -> Scene:
    return scenes(run_of(scenario))[0]


def happening_at(*instants: int) -> Scene:
    return msgspec.structs.replace(scene(), instants=(0, *instants), span_ms=instants[-1])


def texts(drawn_scene: Scene) -> list[str]:
    drawing = DRAWN["crash-lane"](drawn_scene, thumb=False)
    assert drawing.axis is not None
    return [shape.text or "" for shape in drawing.axis.shapes]


def test_idle_time_is_left_out_and_its_length_is_said() -> None:
    idle = happening_at(20, 40, 10_040, 10_100)
    gapped = idle.without_idle_time()
    [(start, end)] = gapped.gaps
    assert 40 < start < end < 10_040
    assert gapped.at(end) - gapped.at(start) == pytest.approx(GAP)
    assert gapped.at(0) == 0
    assert gapped.at(gapped.span_ms) == pytest.approx(1)
    places = [gapped.at(t_ms) for t_ms in (0, 20, 40, start, 5_000, end, 10_040, 10_100)]
    assert all(before < after for before, after in itertools.pairwise(places))
    assert gapped.at(40) - gapped.at(20) == pytest.approx(gapped.at(10_060) - gapped.at(10_040))
    assert "9.98 s later" in texts(idle)


def test_two_stretches_of_idle_time_are_two_gaps() -> None:
    gapped = happening_at(100, 10_000, 10_100, 20_000, 20_100).without_idle_time()
    assert len(gapped.gaps) == 2
    assert gapped.at(gapped.span_ms) == pytest.approx(1)
    assert gapped.at(10_050) == pytest.approx((gapped.at(10_000) + gapped.at(10_100)) / 2)


@pytest.mark.parametrize(
    "instants",
    [(14, 39, 55), (1_000, 2_000, 3_000, 6_000), (2_000, 5_000, 9_000)],
    ids=["little time", "much else", "too many gaps"],
)
def test_other_idle_time_is_kept(instants: tuple[int, ...]) -> None:
    whole = happening_at(*instants)
    assert whole.without_idle_time() == whole


def test_nothing_at_all_has_a_scale() -> None:
    empty = msgspec.structs.replace(scene(), instants=(0,), span_ms=1).without_idle_time()
    assert empty.at(0) == 0
    assert empty.ticks()


def test_lanes_that_are_aligned_begin_at_the_send() -> None:
    drawn = scene("duplicates")
    sent = [event.t_ms for event in drawn.evidence.sent().values()]
    assert len(set(sent)) > 1
    assert {drawn.since(t_ms).at(t_ms) for t_ms in sent} == {0}
    assert drawn.since(sent[1]).at(sent[1] + drawn.round_ms) == pytest.approx(1 / 1.05, rel=0.01)
    drawing = DRAWN["late-lanes"](drawn, thumb=False)
    assert drawing.unit == "by the time since it was sent"
    for strip in drawing.strips:
        [sends] = [s for s in strip.canvas.shapes if s.attributes.get("href") == "#m-send"]
        assert sends.attributes["x"] == "0.00%"


def test_both_variants_leave_out_the_same_time() -> None:
    run = run_of("crash")
    gaps = {one.without_idle_time().gaps for one in scenes(run)}
    assert len(gaps) == 1


def test_what_a_holder_does_after_its_lease_is_late() -> None:
    script = script_of("duplicates", broken=True)
    late = lateness(script.evidence, visibility_ms=script.lease_ms)
    events = {event.i: event for event in script.history.events}
    until = {(e.message, e.process): e.until_ms for e in events.values() if e.f == "receive"}
    assert {events[i].f for i in late} == {"effect", "delete"}
    for i, late_ms in late.items():
        assert late_ms == events[i].t_ms - (until[events[i].message, events[i].process] or 0) > 0
