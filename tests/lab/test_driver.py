"""The driven clock with real processes and a server: nothing waits in real time, and the order is always the same."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped] # As in tests.support.
import pytest

from penstock.lab import observing
from penstock.lab.driver import Driver, Stalled
from penstock.lab.embedded_server import EmbeddedServer
from penstock.lab.endpoints import client
from penstock.lab.nursery import SOCKET_VARIABLE
from penstock.lab.processes import Process, Processes

HOUR_MS = 3_600_000


class Rig:
    """A server, processes and a driver, as a run has them, without a scenario."""

    def __init__(self, processes: Processes, server: EmbeddedServer, folder: Path) -> None:
        self.processes = processes
        self.server = server
        self.folder = folder
        self.ended: list[Process] = []
        self.driver = Driver(processes, server, ended=self.ended.append, stuck_s_max=20)
        self.origin_ms = self.driver.now_ms()
        self.sqs = client("sqs", endpoint=server.url)
        self.queue_url = str(self.sqs.create_queue(QueueName=f"rig-{self.origin_ms}-{time.monotonic_ns()}")["QueueUrl"])
        self._started = 0

    def close(self) -> None:
        self.sqs.close()
        self.processes.end_all()

    def start(self, name: str, program: str, *arguments: str) -> Process:
        self._started += 1
        environment = os.environ | {
            observing.FOLDER_VARIABLE: str(self.folder),
            observing.PROCESS_VARIABLE: name,
            observing.NUMBER_VARIABLE: str(self._started),
            observing.DRIVEN_VARIABLE: "1",
            observing.ORIGIN_VARIABLE: str(self.origin_ms),
            observing.SEED_VARIABLE: "7",
            "DIARY": str(self.folder / "diary"),
            "QUEUE_URL": self.queue_url,
        }
        process = self.processes.start(
            name, f"tests.lab.programs:{program}", arguments, dict(environment), self.folder / f"{name}.log"
        )
        self.driver.started(process)
        return process

    def wait(self, *processes: Process, until_ms: int | None = None) -> bool:
        until = None if until_ms is None else self.origin_ms + until_ms
        return self.driver.wait(lambda: not any(process.running for process in processes), until_ms=until)

    def diary(self) -> list[str]:
        return (self.folder / "diary").read_text(encoding="utf-8").splitlines()

    def now_ms(self) -> int:
        return self.driver.now_ms() - self.origin_ms


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(["tests.lab.programs"]) as processes:
        yield processes


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    store = f"sqlite:{tmp_path_factory.mktemp('server') / 'penstock.db'}"
    with EmbeddedServer(store, region="us-west-1", driven=True) as server:
        yield server


@pytest.fixture
def rig(processes: Processes, embedded: EmbeddedServer, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(processes, embedded, tmp_path)
    yield rig
    rig.close()


def test_hours_of_sleep_pass_at_once_and_in_order(rig: Rig) -> None:
    began_s = time.monotonic()
    rig.wait(
        rig.start("A", "sleeper", str(HOUR_MS), "1"),
        rig.start("B", "sleeper", "10", str(HOUR_MS)),
    )
    assert rig.diary() == [
        "0 A began",
        "0 B began",
        "10 B slept 10",
        f"{HOUR_MS} A slept {HOUR_MS}",
        f"{HOUR_MS + 1} A slept 1",
        f"{HOUR_MS + 10} B slept {HOUR_MS}",
    ]
    assert time.monotonic() - began_s < 20


def test_a_long_poll_ends_at_its_deadline(rig: Rig) -> None:
    rig.wait(rig.start("A", "poller", "3", "20"))
    assert rig.diary() == ["20000 A got nothing", "40000 A got nothing", "60000 A got nothing"]


def test_a_message_ends_a_poll_at_the_instant_it_is_sent(rig: Rig) -> None:
    rig.wait(rig.start("A", "poller", "2", "20"), rig.start("B", "sender", "500=one", "7300=two"))
    assert rig.diary() == ["500 B sent one", "500 A got one", "7300 B sent two", "7300 A got two"]


def test_a_poll_gets_a_message_when_its_lease_ends(rig: Rig) -> None:
    rig.sqs.set_queue_attributes(QueueUrl=rig.queue_url, Attributes={"VisibilityTimeout": "5"})
    rig.wait(rig.start("B", "sender", "100=one"))
    rig.wait(rig.start("A", "poller", "2", "20"))
    assert rig.diary() == ["100 B sent one", "100 A got one", "5100 A got one"]


def test_those_who_wait_in_line_are_served_in_order(rig: Rig) -> None:
    pollers = [rig.start(name, "poller", "1", "20") for name in "ABC"]
    rig.wait(*pollers, rig.start("S", "sender", "100=one", "200=two", "300=three"))
    got = [line for line in rig.diary() if "got" in line]
    assert got == ["100 A got one", "200 B got two", "300 C got three"]


def test_the_scenario_goes_on_at_its_instant(rig: Rig) -> None:
    process = rig.start("A", "sleeper", "10000")
    assert not rig.wait(process, until_ms=4_000)
    assert rig.now_ms() == 4_000
    assert rig.wait(process)
    assert rig.now_ms() == 10_000


def test_a_killed_poller_gets_no_message_and_holds_nobody_up(rig: Rig) -> None:
    killed = rig.start("A", "poller", "1", "20")
    rig.wait(killed, until_ms=1_000)
    rig.driver.signal(killed, signal.SIGKILL)
    rig.wait(killed)
    assert killed.code == -signal.SIGKILL
    rig.wait(rig.start("B", "poller", "1", "20"), rig.start("S", "sender", "2000=one"))
    assert [line for line in rig.diary() if "got" in line] == ["2000 B got one"]


def test_a_process_that_keeps_its_turn_is_named(rig: Rig) -> None:
    rig.driver.stuck_s_max = 0.5
    with pytest.raises(Stalled, match=r"A\.\d+ is running"):
        rig.wait(rig.start("A", "hanger"))


def test_waiting_for_nothing_is_an_error(rig: Rig) -> None:
    with pytest.raises(Stalled, match="will not happen"):
        rig.driver.wait(lambda: False)


def test_what_a_process_wrote_before_it_failed_is_kept(rig: Rig) -> None:
    process = rig.start("A", "failing")
    rig.wait(process)
    assert process.code == 70
    assert "no luck today" in process.output.read_text(encoding="utf-8")
    assert "as the test wanted" in process.output.read_text(encoding="utf-8")


def test_all_processes_end_with_the_runner(tmp_path: Path) -> None:
    """The nursery sees that its runner is gone, however that ended, and leaves nobody behind."""
    ours, theirs = socket.socketpair()
    with theirs:
        nursery = subprocess.Popen(
            [sys.executable, "-m", "penstock.lab.nursery", "tests.lab.programs"],
            env=os.environ | {SOCKET_VARIABLE: str(theirs.fileno())},
            pass_fds=(theirs.fileno(),),
            process_group=0,
        )
    with ours:
        ours.settimeout(60)
        assert ours.recv(16) == b"{}\n"
        channel, far = socket.socketpair()
        with channel, far:
            request = (
                '{"type":"start","number":1,"entry":"tests.lab.programs:hanger","arguments":[],'
                f'"environment":{{"DIARY":"{tmp_path}/d","LAB_FOLDER":"{tmp_path}"}},"output":"{tmp_path}/log"}}\n'
            )
            socket.send_fds(ours, [request.encode()], [far.fileno()])
            started = ours.recv(1_024)
            assert b'"started"' in started
            child = psutil.Process(nursery.pid).children()[0]
    assert nursery.wait(20) == 0
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_the_server_can_be_looked_at_from_several_threads(embedded: EmbeddedServer) -> None:
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(embedded.look().polls_parked)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [0] * 8
