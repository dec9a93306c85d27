"""`python -m benchmarks client` and `ways`: real servers, measured too shortly to tell anything."""

from __future__ import annotations

import json

import pytest

from benchmarks.cli.app import app
from benchmarks.client_ways import CALLERS, ENGINE

pytestmark = pytest.mark.slow


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    app([*arguments, "--seconds", "0.05", "--rounds", "1"], exit_on_error=False, result_action="return_value")
    return capsys.readouterr().out


def test_every_way_is_measured_beside_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    ways = json.loads(run(capsys, "ways", "--json"))["ways"]
    assert len(ways) == 5 * len(CALLERS)
    assert {way["cpu_ratio"] for way in ways if way["name"] == ENGINE} == {1.0}
    assert all(way["cpu_us"] > 0 and way["p50_us"] > 0 for way in ways)


def test_the_clients_take_turns(capsys: pytest.CaptureFixture[str]) -> None:
    contenders = json.loads(run(capsys, "client", "--json"))["contenders"]
    assert {each["name"] for each in contenders} >= {"penstock", "aiohttp", "httpx", "penstock sync"}
    assert "aiohttp" in run(capsys, "client")
