"""`peers` without peers: what would be fetched and run, what is told, and a run of Penstock alone."""

from __future__ import annotations

import io
import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from benchmarks.cli.app import app
from benchmarks.cli.peers import LoadName, PeerName
from benchmarks.errors import ServerUnavailable
from benchmarks.peers import fetching
from benchmarks.peers.catalogue import ELASTICMQ, GOAWS, LOCALSTACK, MOTO, PEERS, Launch
from benchmarks.peers.fetching import PythonPackages, default_cache, fetch
from benchmarks.peers.findings import Memory, Missing, PeersReport, Result, Scope, promises
from benchmarks.peers.loads import LOADS
from benchmarks.peers.run import run_peers
from benchmarks.peers.tables import draw, grids, print_peers, to_markdown
from benchmarks.progress import Narrator
from benchmarks.report import to_json
from benchmarks.timing import Latency, Rate

HOME = Path("/cache/peer")
FOLDER = Path("/run/peer")
TINY = Scope(
    rounds=1,
    seconds=0.1,
    connections=4,
    body_bytes=64,
    groups=3,
    backlog=100,
    warm_up_cpu_seconds=0.1,
    fill_seconds_max=10_000.0,
)


def rate(requests_per_s: float, *, batch: int = 1, cpu_us: float = 50.0, p99_ms: float = 2.0) -> Rate:
    return Rate(
        operations=100,
        messages=100 * batch,
        seconds=1.0,
        operations_per_s=requests_per_s,
        messages_per_s=requests_per_s * batch,
        cpu_us_per_message=cpu_us / batch,
        latency=Latency(p50_ms=p99_ms / 2, p90_ms=p99_ms, p99_ms=p99_ms, max_ms=p99_ms),
    )


def result(server: str, load: str, *rates: Rate) -> Result:
    return Result(server=server, load=load, rounds=list(rates))


def report() -> PeersReport:
    from benchmarks.peers.entrants import servers  # noqa: PLC0415 # As the run names them.

    results = [
        result("bare", "send", rate(40_000, cpu_us=20.0)),
        result("penstock", "send", rate(10_000), rate(20_000), rate(90_000)),
        result("goaws", "send", rate(10_000, cpu_us=80.0)),
        result("moto", "send", rate(1_000)),
        result("penstock", "send-tens", rate(5_000, batch=10)),
        result("goaws", "send-tens", rate(4_000, batch=10)),
        result("penstock", "hand-over", rate(100, p99_ms=3.0)),
        result("goaws", "hand-over", rate(10, p99_ms=30.0)),
        result("moto", "hand-over", rate(1, p99_ms=60.0)),
        Result(
            server="penstock",
            load="memory",
            memory=Memory(messages=50_000, before_bytes=40_000_000, after_bytes=50_000_000),
        ),
    ]
    return PeersReport(
        started_at="2026-01-01T00:00:00Z",
        machine="a machine",
        event_loop="uvloop",
        generator="wrk",
        scope=Scope(),
        servers=servers(["bare", "penstock", "goaws", "localstack", "moto"]),
        results=results,
        ratios=promises(results),
        missing=[
            Missing(server="localstack", reason="pip is [not] there"),
            Missing(server="goaws", load="backlog", reason="too slow"),
        ],
    )


def test_elasticmq_is_fetched_by_name_and_version_and_keeps_messages_in_h2_on_request() -> None:
    plan = ELASTICMQ.plan(HOME)
    assert plan.tool == "mvn"
    assert "<artifactId>elasticmq-server_2.13</artifactId>" in plan.files["pom.xml"]
    assert f"<version>{ELASTICMQ.version}</version>" in plan.files["pom.xml"]
    assert plan.steps[0].command[-2:] == ["-DoutputDirectory=/cache/peer/lib", "-Dmaven.repo.local=/cache/maven"]
    in_memory, stored = (PEERS[name].launch(HOME, FOLDER, 1234) for name in ("elasticmq", "elasticmq-h2"))
    assert in_memory.command == [
        "java",
        "-Dconfig.file=elasticmq.conf",
        "-cp",
        "/cache/peer/lib/*",
        "org.elasticmq.server.Main",
    ]
    assert "bind-port = 1234" in in_memory.files["elasticmq.conf"]
    assert "messages-storage { enabled = false }" in in_memory.files["elasticmq.conf"]
    assert "messages-storage { enabled = true, driver-class-name" in stored.files["elasticmq.conf"]


def test_goaws_is_built_from_a_module_that_requires_it() -> None:
    plan = GOAWS.plan(HOME)
    assert plan.files["go.mod"].endswith(f"require github.com/Admiral-Piett/goaws {GOAWS.version}\n")
    [step] = plan.steps
    assert step.command == ["go", "build", "-o", "program", "github.com/Admiral-Piett/goaws/app/cmd"]
    assert step.settings["GOPATH"] == "/cache/go"
    launch = PEERS["goaws"].launch(HOME, FOLDER, 1234)
    assert launch.command[0] == "/cache/peer/program"
    assert "  Port: 1234\n" in launch.files["goaws.yaml"]


@pytest.mark.parametrize(("source", "module"), [(MOTO, "moto.server"), (LOCALSTACK, "localstack.runtime.main")])
def test_python_peers_live_in_environments_of_their_own(source: PythonPackages, module: str) -> None:
    venv, pip = source.plan(HOME).steps
    assert venv.command == [sys.executable, "-m", "venv", "/cache/peer"]
    assert pip.command[:4] == ["/cache/peer/bin/python", "-m", "pip", "install"]
    assert any(source.version in requirement for requirement in pip.command)
    launch: Launch = PEERS[source.name].launch(HOME, FOLDER, 1234)
    assert launch.command[:3] == ["/cache/peer/bin/python", "-m", module]
    assert "1234" in " ".join([*launch.command, *launch.settings.values()])


def test_nothing_says_where_a_registry_is() -> None:
    for peer in PEERS.values():
        plan = peer.source.plan(HOME)
        told = [*plan.files.values(), *(word for step in plan.steps for word in step.command)]
        assert not [text for text in told if "://" in text]


def test_a_peer_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tmp_path / "count"
    source = _peer(f"open({str(count)!r}, 'a').write('x')", monkeypatch)
    assert fetch(source, tmp_path / "cache") == tmp_path / "cache" / "some-1"
    fetch(source, tmp_path / "cache")
    assert count.read_text() == "x"


def test_a_peer_that_cannot_be_fetched_says_why_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _peer("raise SystemExit('no such version')", monkeypatch)
    for _ in range(2):
        with pytest.raises(ServerUnavailable, match="some-1 cannot be fetched: no such version"):
            fetch(source, tmp_path)


def test_a_peer_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FETCH_SECONDS_MAX", 0.01)
    source = _peer("import threading; threading.Event().wait()", monkeypatch)
    with pytest.raises(ServerUnavailable, match=r"cannot be fetched within 0\.01 s"):
        fetch(source, tmp_path)


def test_a_missing_tool_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerUnavailable, match="mvn is not installed"):
        fetch(ELASTICMQ, tmp_path)


def _peer(script: str, monkeypatch: pytest.MonkeyPatch) -> PythonPackages:
    plan = fetching.Plan(tool=sys.executable, steps=[fetching.Step(command=[sys.executable, "-c", script])])
    monkeypatch.setattr(PythonPackages, "plan", lambda _, __: plan)
    return PythonPackages(name="some", version="1", requirements=[])


def test_the_cache_is_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "penstock" / "peers"


def test_promises_compare_medians_with_the_best_peer() -> None:
    assert [(each.name, each.value, each.wanted) for each in report().ratios] == [
        ("send: requests/s to the fastest peer", 2.0, 1.5),
        ("send-tens: messages/s to the fastest peer", 1.25, 2.0),
        ("hand-over: p99 of the best peer to ours", 10.0, 1.0),
        ("send: processor time of the bare handler to ours", 0.4, 0.5),
    ]


def test_tables_show_rates_as_multiples_of_ours() -> None:
    rates, multiples, cpu, waiting = grids(report())
    assert rates.headings == ["", "send, requests/s", "send in tens, messages/s"]
    assert rates.rows[1] == ["Penstock", "20,000", "50,000"]
    assert multiples.rows == [
        ["bare handler", "2.00", "–"],
        ["Penstock", "1.00", "1.00"],
        ["GoAWS v0.5.4", "0.50", "0.80"],
        ["moto 5.2.5", "0.05", "–"],
    ]
    assert cpu.rows[2] == ["GoAWS v0.5.4", "80.0", "50.0"]
    assert waiting.rows[1] == ["Penstock", "SQLite, durable", "1.50", "3.00", "20.0", "50.0"]


def test_what_could_not_run_is_told_everywhere() -> None:
    shown = io.StringIO()
    print_peers(report(), Console(file=shown, width=200))
    for text in (shown.getvalue(), to_markdown(report())):
        assert "Not measured: localstack: pip is [not] there" in text
        assert "Not measured: goaws, lifecycle on a backlog: too slow" in text
        assert "send: requests/s to the fastest peer: 2.00  (at least 1.5 is wanted)" in text
    assert "| GoAWS v0.5.4 | 10,000 | 40,000 |" in to_markdown(report())


def test_the_plot_has_a_panel_for_each_load() -> None:
    texts = [element.text for element in ET.fromstring(draw(report())).iter() if element.tag.endswith("text")]
    for load in ("send", "send-tens", "hand-over", "memory"):
        assert LOADS[load].title in texts
    assert LOADS["fifo"].title not in texts


def test_the_report_survives_json() -> None:
    assert msgspec.json.decode(to_json(report()), type=PeersReport) == report()


def test_the_command_knows_every_peer_and_load() -> None:
    assert list(PEERS) == list(PeerName.__args__)  # type: ignore[attr-defined] # It is a Literal.
    assert list(LOADS) == list(LoadName.__args__)  # type: ignore[attr-defined] # It is a Literal.


@pytest.mark.slow
async def test_penstock_alone_is_measured_under_every_load(tmp_path: Path, narrator: Narrator) -> None:
    names, loads = ["bare", "penstock"], list(LOADS.values())
    found = await run_peers(names, loads, TINY, tmp_path, narrator, own=True)
    for seconds in (1.0, 10.0):  # How long it takes to have something to tell, the machine decides.
        if found.missing:
            scope = msgspec.structs.replace(TINY, seconds=seconds)
            found = await run_peers(names, loads, scope, tmp_path, narrator, own=True)
    assert found.missing == []
    assert {(each.server, each.load) for each in found.results} == {
        ("bare", "send"),
        *(("penstock", load) for load in LOADS),
    }
    memory = found.result("penstock", "memory")
    assert memory is not None
    assert memory.memory is not None
    assert memory.memory.messages == 100


@pytest.mark.slow
async def test_a_peer_that_does_not_start_leaves_the_others_alone(
    tmp_path: Path, narrator: Narrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _peer("", monkeypatch)
    broken = msgspec.structs.replace(
        PEERS["moto"], launch=lambda *_: Launch(command=[sys.executable, "-c", "raise SystemExit('out of luck')"])
    )
    monkeypatch.setitem(PEERS, "moto", broken)
    scope = msgspec.structs.replace(TINY, seconds=2.0)
    found = await run_peers(["bare", "moto"], [LOADS["send"]], scope, tmp_path, narrator, own=True)
    assert [(each.server, each.load) for each in found.results] == [("bare", "send")]
    [missing] = found.missing
    assert (missing.server, missing.load) == ("moto", None)
    assert "out of luck" in missing.reason


@pytest.mark.slow
def test_the_command_keeps_a_report_a_plot_and_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    words = "peers --peer goaws --load send --own-generator --rounds 1 --seconds 0.1 --warm-up 0.1 --connections 4"
    places = ["--cache", str(tmp_path / "cache"), "--markdown", str(tmp_path / "peers.md"), "--output", str(tmp_path)]
    assert app([*words.split(), *places, "--json"], result_action="return_value") == 0
    [path] = tmp_path.glob("peers-*.json")
    kept = json.loads(path.read_text())
    assert kept == json.loads(capsys.readouterr().out)
    reason = "goaws-v0.5.4 cannot be fetched: go is not installed"
    assert reason in [each["reason"] for each in kept["missing"]]
    assert path.with_suffix(".svg").exists()
    assert f"- Not measured: goaws: {reason}\n" in (tmp_path / "peers.md").read_text()
