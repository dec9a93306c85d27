"""`python -m benchmarks http`: real server processes, measured too shortly to tell anything."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped] # Its types are a package of their own, for a few calls here.
import pytest
from rich.console import Console

from benchmarks import http_servers
from benchmarks.cli.app import app
from benchmarks.compare import CompareReport, run_http
from benchmarks.compare_http import NO_MOTO
from benchmarks.errors import ServerUnavailable
from benchmarks.findings import Extent
from benchmarks.http_generator import OWN, some_generator
from benchmarks.http_load import Job, Kind
from benchmarks.http_servers import Serving, bare_handler, moto_server, penstock_server, with_queue
from benchmarks.progress import Narrator
from benchmarks.report import print_compare, to_json
from benchmarks.timing import Rate
from tests.unit.benchmarks.long_enough import long_enough, run_long_enough

TINY = Extent(rounds=1, seconds=0.1, callers=8, body_bytes=64)


def job(serving: Serving, kind: Kind, batch: int, seconds: float) -> Job:
    return Job(
        port=serving.port,
        pid=serving.pid,
        queue_url=serving.queue_url,
        kind=kind,
        batch=batch,
        connections=4,
        body_bytes=64,
        seconds=seconds,
    )


@pytest.mark.slow
async def test_the_server_is_set_beside_a_bare_handler(narrator: Narrator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.compare_http.find_moto", lambda: None)
    report = await long_enough(
        lambda seconds: run_http(msgspec.structs.replace(TINY, seconds=seconds), narrator, own=True)
    )
    [section] = report.sections
    assert [trial.name for trial in section.trials] == [
        "bare handler, SendMessage",
        "SendMessage",
        "SendMessageBatch of ten",
        "lifecycle, one by one",
        "lifecycle, in tens",
    ]
    assert [(each.name, each.wanted) for each in section.ratios] == [
        ("SendMessage to the bare handler", 0.5),
        ("the same by the processor time of the server", None),
        ("messages in tens to single ones", 3.0),
    ]
    assert report.notes == [NO_MOTO]
    assert msgspec.json.decode(to_json(report), type=CompareReport) == report
    shown = io.StringIO()
    print_compare(report, Console(file=shown, width=160))
    for text in ("requests/s", "CPU µs each", OWN, "(at least 0.5 is wanted)", NO_MOTO):
        assert text in shown.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "batch"), [("send", 1), ("send", 10), ("lifecycle", 1), ("lifecycle", 10)])
async def test_wrk_does_the_same_jobs(tmp_path: Path, kind: Kind, batch: int) -> None:
    if shutil.which("wrk") is None:
        pytest.skip("wrk is not installed")
    with penstock_server(tmp_path) as server:
        async with some_generator(tmp_path) as wrk:
            assert wrk.name == "wrk"
            queue = with_queue(server, "q")
            rate = await long_enough(lambda seconds: wrk.run(job(queue, kind, batch, seconds)))
    assert rate.messages > 0
    assert rate.cpu_us_per_operation > 0


@pytest.mark.slow
async def test_what_the_generator_counts_is_what_the_server_took(tmp_path: Path) -> None:
    async def measure(seconds: float) -> tuple[Rate, int]:
        """Ask a new server, which has taken nothing else, and look into its queue."""
        folder = tmp_path / f"{seconds:g}"
        folder.mkdir()
        with penstock_server(folder) as server:
            async with some_generator(folder, own=True) as generator:
                rate = await generator.run(job(with_queue(server, "q"), "send", 10, seconds))
            return rate, _stats(server.port)["queues"][0]["visible"]

    rate, visible = await long_enough(measure)
    assert rate.messages == 10 * rate.operations
    # Answers that came after the end are not counted.
    assert rate.messages <= visible <= rate.messages + 4 * 10


def _stats(port: int) -> dict[str, list[dict[str, int]]]:
    import urllib.request  # noqa: PLC0415 # For this alone.

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=10) as answer:
        found: dict[str, list[dict[str, int]]] = json.load(answer)
        return found


def test_a_server_is_gone_when_it_was_measured(tmp_path: Path) -> None:
    with bare_handler(tmp_path) as bare:
        assert psutil.Process(bare.pid).cmdline()[-1] == "benchmarks.http_bare"
    assert not psutil.pid_exists(bare.pid)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    with pytest.raises(ServerUnavailable, match="no such luck"), moto_server(broken, tmp_path):
        pass


def test_moto_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert http_servers.find_moto() is None
    program = tmp_path / "moto_server"
    program.touch(mode=0o755)
    assert http_servers.find_moto() == [str(program)]


@pytest.mark.slow
def test_the_command_keeps_its_result_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.compare_http.find_moto", lambda: None)
    words = ["http", "--own-generator", "--rounds=1", "--connections=4", "--json", f"--output={tmp_path}"]
    run_long_enough(lambda seconds: app([*words, f"--seconds={seconds}"], result_action="return_value"))
    [path] = tmp_path.glob("http-*.json")
    assert json.loads(path.read_text()) == json.loads(capsys.readouterr().out)
