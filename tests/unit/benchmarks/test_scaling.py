"""`python -m benchmarks scaling`: what is told of growth, and runs that are too short to tell anything."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from benchmarks.cli.app import app
from benchmarks.cli.scaling import AxisName
from benchmarks.findings import Figure
from benchmarks.progress import Narrator
from benchmarks.report import to_json
from benchmarks.scaling.findings import AXES, Axis, Flood, Missing, Point, ScalingReport, Scope, Window
from benchmarks.scaling.nodes import NO_POSTGRES
from benchmarks.scaling.run import run_scaling
from benchmarks.scaling.tables import draw, grids, print_scaling, to_markdown
from benchmarks.timing import Latency, Rate

TINY = Scope(
    rounds=1,
    seconds=0.1,
    connections=4,
    body_bytes=64,
    queues=(1, 3),
    backlogs=(10, 20),
    many_connections=(1, 2),
    sizes_bytes=(10, 20),
    small_nodes=(1, 2),
    flood_windows=2,
)


def rate(requests_per_s: float, cpu_us: float = 50.0) -> Rate:
    return Rate(
        operations=100,
        messages=50,
        seconds=1.0,
        operations_per_s=requests_per_s,
        messages_per_s=requests_per_s / 2,
        cpu_us_per_message=cpu_us * 2,
        latency=Latency(p50_ms=1.0, p90_ms=2.0, p99_ms=3.0, max_ms=4.0),
    )


def report() -> ScalingReport:
    points = [
        Point(amount=1, rounds=[rate(1_000), rate(2_000), rate(100)]),
        Point(amount=10_000, rounds=[rate(900, 60.0), rate(1_000, 62.5), rate(90, 70.0)], database_cpu_us=7.0),
    ]
    figure = Figure(name="memory", value=301.0, unit="MB", wanted_max=300.0)
    return ScalingReport(
        started_at="2026-01-01T00:00:00Z",
        machine="a machine",
        event_loop="uvloop",
        generator="wrk",
        scope=Scope(),
        axes=[Axis(name="queues", title="queues", flat=True, points=points, figures=[figure])],
        flood=Flood(windows=[Window(rate=rate(5), memory_bytes=7_000_000, waiting=12)], consumed=3, figures=[]),
        missing=[Missing(name="nodes", reason=NO_POSTGRES)],
    )


def test_a_share_is_taken_round_by_round() -> None:
    [axis] = report().axes
    assert [axis.share(point) for point in axis.points] == [1.0, 0.9]
    assert [axis.cpu_share(point) for point in axis.points] == [1.0, 0.8]


def test_tables_and_markdown_tell_of_all() -> None:
    (queues, figures), (flood, _) = grids(report())
    assert queues.headings[-1] == "database CPU µs"
    assert queues.rows[1] == ["10,000", "900", "0.90", "62.5", "0.80", "3.0", "7.0"]
    assert [figure.reached for figure in figures] == [False]
    assert flood.rows == [["12", "5", "50.0", "1.0", "3.0", "7"]]
    shown = io.StringIO()
    print_scaling(report(), Console(file=shown, width=160))
    for text in (shown.getvalue(), to_markdown(report())):
        assert "memory: 301.0 MB  (at most 300 is wanted)" in text
        assert f"Not measured: nodes: {NO_POSTGRES}" in text
    assert "| 10,000 | 900 | 0.90 | 62.5 | 0.80 | 3.0 | 7.0 |" in to_markdown(report())


def test_the_plot_has_a_panel_for_each_axis_and_two_for_the_flood() -> None:
    drawn = ET.fromstring(draw(report()))
    assert len([element for element in drawn.iter() if element.tag.endswith("}g")]) == 3


def test_the_report_survives_json() -> None:
    assert msgspec.json.decode(to_json(report()), type=ScalingReport) == report()


def test_the_command_knows_every_axis() -> None:
    assert AxisName.__args__ == AXES  # type: ignore[attr-defined] # It is a Literal.


async def measured(names: list[str], narrator: Narrator) -> ScalingReport:
    """Measure long enough to have something to tell: how long that is, the machine decides."""
    found = await run_scaling(names, TINY, narrator, own=True)
    for seconds in (1.0, 10.0):
        if found.missing:
            found = await run_scaling(names, msgspec.structs.replace(TINY, seconds=seconds), narrator, own=True)
    assert found.missing == []
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "amounts"), [("queues", [1, 3]), ("backlog", [10, 20]), ("connections", [1, 2]), ("sizes", [10, 20])]
)
async def test_an_axis_of_sqlite_is_measured(name: str, amounts: list[int], narrator: Narrator) -> None:
    [axis] = (await measured([name], narrator)).axes
    assert (axis.name, [point.amount for point in axis.points]) == (name, amounts)
    assert all(point.rounds for point in axis.points)


@pytest.mark.slow
async def test_a_flood_is_looked_at_again_and_again(narrator: Narrator) -> None:
    found = await measured(["flood"], narrator)
    assert found.flood is not None
    assert len(found.flood.windows) == 2
    assert all(window.memory_bytes > 0 for window in found.flood.windows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nodes", "small-nodes"])
async def test_nodes_share_a_database(name: str, narrator: Narrator) -> None:
    found = await measured([name], narrator)
    [axis] = found.axes
    assert [point.amount for point in axis.points] == [1, 2]
    assert all(point.database_cpu_us is not None for point in axis.points)


async def test_without_postgresql_the_reason_is_told(narrator: Narrator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.compare_postgres.find_binaries", lambda: None)
    found = await run_scaling(["nodes"], TINY, narrator, own=True)
    assert found.missing == [Missing(name="nodes", reason=NO_POSTGRES)]


@pytest.mark.slow
def test_the_command_keeps_a_report_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "scaling --axis connections --own-generator --rounds 1 --seconds 0.1 --json --output"
    assert app([*words.split(), str(tmp_path)], result_action="return_value") == 0
    [path] = tmp_path.glob("scaling-*.json")
    assert json.loads(path.read_text()) == json.loads(capsys.readouterr().out)
    assert path.with_suffix(".svg").exists()
