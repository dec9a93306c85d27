"""`penstock lab`: what it writes and with which code it exits."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import msgspec
import psutil  # type: ignore[import-untyped] # As in tests.support.
import pytest

from penstock.cli.failures import show
from penstock.cli.lab.failures import failure_of
from penstock.cli.lab.ls import ls
from penstock.cli.lab.progress import VariantBars
from penstock.cli.lab.summary import Summary
from penstock.cli.lab.verdicts import conclusion, exit_is_good, heading, verdict
from penstock.cli.terminal.live_block import LiveBlock
from penstock.cli.terminal.screen import Screen
from penstock.cli.terminal.signs import Signs
from penstock.domain.clock import SystemClock
from penstock.domain.policy import Policy
from penstock.lab.archive import Archive
from penstock.lab.endpoints import client
from penstock.lab.environment import Missing
from penstock.lab.knobs import turned
from penstock.lab.laboratory import Laboratory, Progress
from penstock.lab.run import Run, run_json
from penstock.lab.scenarios import NAMES, scenario
from penstock.lab.stage import ScenarioFailed
from penstock.lab.variables import BadValue
from penstock.server.access import AccessKey
from penstock.server.config import ServerConfig
from penstock.testing import serve
from tests.unit.cli.terminals import UTF8, Terminal
from tests.unit.cli.test_usage import run as run_command


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("COUNT", "VISIBILITY_TIMEOUT", "SLOW_SECONDS", "QUEUE_URL", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def duplicates(sqlite_laboratory: Laboratory) -> Run:
    played = scenario("duplicates")
    return sqlite_laboratory.run(played, turned(played.knobs, {}, {}))


DUPLICATES = """\
duplicates  At least two receives, exactly one call.
            this server, 0.1.0 on SQLite, manual clock, seed 7

  ✓ protected holds              5 sent, 10 receives,  5 calls
  ✕ broken breaks, as it must    5 sent, 10 receives, 10 calls
    Each message causes exactly one call: 10 calls for 5 messages

Why it broke  the smallest set of events that breaks the rule: 4 of 68, on m1
     #  t, ms  who  event      what
     2     14  A    ▣ receive  lease until 2,014 ms
     5  2,014  B    ↻ receive  received again, lease until 4,014 ms
     8  3,072  A    ◆ effect   call written, 1.1 s after its lease ended
    11  5,072  B    ◆ effect   call written, 1.1 s after its lease ended

      0 s      1       2      3        4       5
    A ●▣━━━━━━━━━━━━━━━━╌╌╌╌╌╌╌◆✓                   works on without a lease
    B                  ↻━━━━━━━━━━━━━━━━╌╌╌╌╌╌╌╌◆✓  gets it again, calls again

The work took longer than its lease, so each message was received twice. Both
consumers saw nothing on record; only the conditional write stopped the second
call.

✓ Both variants behave as they must. 1.2 s
  report  lab/duplicates-7.html
  try     VISIBILITY_TIMEOUT=4 penstock lab run duplicates --open"""


def test_a_verdict_shows_the_smallest_proof(duplicates: Run) -> None:
    with Terminal() as terminal:
        screen = Screen(terminal.stream, environment=UTF8)
        played = scenario("duplicates")
        backend = duplicates.backend.replace(duplicates.versions["penstock"], "0.1.0")
        screen.write(heading(screen, played, duplicates.endpoint, backend, 7))
        screen.write(verdict(screen, duplicates))
        screen.write(conclusion(screen, duplicates, played, "lab/duplicates-7.html", took_s=1.2))
    assert terminal.screen.rstrip() == DUPLICATES


def test_what_an_endpoint_does_differently_is_said_at_the_end(duplicates: Run) -> None:
    elsewhere = msgspec.structs.replace(duplicates, difference="It stores a retried send twice. " * 4)
    with Terminal() as terminal:
        screen = Screen(terminal.stream, environment=UTF8)
        screen.write(conclusion(screen, elsewhere, scenario("duplicates"), "lab/duplicates-7.html", took_s=1.2))
    assert "  differs It stores a retried send twice. It" in terminal.screen
    assert "\n          " in terminal.screen
    assert run_json(elsewhere)["difference"].startswith("It stores")


def test_a_verdict_needs_neither_colour_nor_unicode(duplicates: Run) -> None:
    with Terminal() as terminal:
        screen = Screen(terminal.stream, environment={"TERM": "dumb", "LC_ALL": "C"})
        screen.write(verdict(screen, duplicates))
    assert "\x1b" not in terminal.raw
    assert "  + protected holds" in terminal.screen
    assert "  x broken breaks" in terminal.screen


def test_rows_appear_as_scenarios_end_and_failures_stand_last(duplicates: Run) -> None:
    with Terminal() as terminal:
        screen = Screen(terminal.stream, environment=UTF8)
        summary = Summary(screen, screen, ["duplicates", "business-idempotency"])
        summary.head("this server", "0.1.0 on SQLite, manual clock", 7)
        summary.row(duplicates, 1.2, "lab/duplicates-7.html")
        summary.end(48, "lab/index.html")
    assert (
        terminal.screen.rstrip()
        == """\
2 scenarios  this server, 0.1.0 on SQLite, manual clock, seed 7

  scenario              verdict       found                              took, s
✓ duplicates            holds         10 receives, 5 calls                   1.2

1 holds and fails when broken. 48 s.
  report  lab/index.html"""
    )


def test_a_protected_variant_that_fails_is_repeated_below_with_its_command(duplicates: Run) -> None:
    assert duplicates.broken is not None
    failing = msgspec.structs.replace(
        duplicates, protected=msgspec.structs.replace(duplicates.broken, name="protected")
    )
    assert not exit_is_good(failing)
    with Terminal() as terminal:
        screen = Screen(terminal.stream, environment=UTF8)
        summary = Summary(screen, screen, ["duplicates"])
        summary.row(failing, 1.2, "lab/duplicates-7.html")
        summary.end(48, "lab/index.html")
    assert terminal.screen.splitlines()[2:] == [
        "1 fails. 48 s.",
        "",
        "✕ duplicates  Each message causes exactly one call: 10 calls for 5 messages",
        "  report  lab/duplicates-7.html  all: lab/index.html",
        "  again   penstock lab run duplicates --seed 7",
    ]


def test_live_lines_show_both_variants_and_go_when_they_are_done() -> None:
    bars = VariantBars(Signs(ascii_only=False), 5)
    bars.note(Progress(variant="protected", sent=5, done=5))
    bars.note(Progress(variant="broken", sent=5, in_flight=2, done=2, consumers=2, took_s=3.8))
    with Terminal() as terminal:
        screen = Screen(terminal.stream, environment=UTF8)
        block = LiveBlock(terminal.stream, screen)
        block.show(bars.lines())
        while "3.8 s" not in terminal.raw:
            time.sleep(0.001)
        during = terminal.screen
        block.close()
    assert during.splitlines() == [
        "  ✓ protected  ━━━━━━━━━━━━━━━━━━━━━━━━   5 of 5",
        "  ▣ broken     ━━━━━━━━━╸──────────────   2 of 5",
        "",
        "    ● 1 waiting   ▣ 2 in flight   ✓ 2 done   † 0 dead   2 consumers   3.8 s",
    ]
    assert terminal.screen.strip() == ""
    assert terminal.raw.endswith("\x1b[?25h")


def test_the_list_says_what_became_of_each_last(duplicates: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hours_ago = msgspec.structs.replace(duplicates, started_ms=SystemClock().wall_ms() - 2 * 3_600_000 - 5_000)
    Archive(Path("lab")).keep(hours_ago)
    with Terminal() as terminal:
        monkeypatch.setattr(sys, "stdout", terminal.stream)
        assert ls() == 0
        monkeypatch.undo()
    lines = terminal.screen.splitlines()
    wide = max(len(name) for name in NAMES) + 2
    assert lines[0] == f"{'scenario':<{wide}}it must be that                     last              ago"
    assert f"{'duplicates':<{wide}}two receives or more, one call      ✓ holds           2 h" in lines
    assert f"{'happy':<{wide}}sent = effects = deletes            –               never" in lines


# -- the command --------------------------------------------------------------------------------------


def test_a_scenario_that_behaves_exits_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "lab", "run", "happy", "--count", "2", "--out", "out") == 0
    written = capsys.readouterr()
    assert written.err == ""
    assert written.out.startswith("happy  What is sent is done and deleted, once.\n       this server, ")
    assert "✓ protected holds" in written.out
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "happy-7-count-2.broken.jsonl",
        "happy-7-count-2.html",
        "happy-7-count-2.protected.jsonl",
        "index.html",
        "runs.json",
    ]
    assert run_command(monkeypatch, "lab", "ls", "--out", "out") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["scenario", "rule", "last", "ago_s"]
    assert [row[0] for row in rows[1:]] == list(NAMES)
    assert rows[1][2] == "holds"
    assert run_command(monkeypatch, "lab", "report", "happy", "--out", "out") == 0
    assert capsys.readouterr().out == "out/happy-7-count-2.html\n"
    assert run_command(monkeypatch, "lab", "report", "--out", "out") == 0
    assert capsys.readouterr().out == "out/index.html\n"


def test_runs_with_other_knobs_or_of_one_variant_keep_their_own_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "lab", "run", "crash", "--out", "out") == 0
    assert "  try     VISIBILITY_TIMEOUT=5 penstock lab run crash --open" in capsys.readouterr().out
    assert run_command(monkeypatch, "lab", "run", "crash", "--visibility-timeout", "5", "--out", "out") == 0
    assert "  again   penstock lab run crash --seed 7 --visibility-timeout 5" in capsys.readouterr().out
    assert run_command(monkeypatch, "lab", "run", "crash", "--broken", "--out", "out") == 4
    reports = sorted(path.name for path in Path("out").glob("*.html"))
    assert reports == ["crash-7-broken.html", "crash-7-visibility-timeout-5.html", "crash-7.html", "index.html"]
    alone = (Path("out") / "crash-7-broken.html").read_text(encoding="utf-8")
    assert "breaks, as it must</span>" in alone
    assert "Broken: breaks, as it must" in alone
    assert ">on receive<" in alone
    assert ">after the work<" not in alone
    index = (Path("out") / "index.html").read_text(encoding="utf-8")
    assert "crash-7-visibility-timeout-5.html" in index
    assert "crash-7-broken.html" not in index


def test_reports_of_one_command_link_to_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "lab", "run", "happy", "crash", "--count", "2", "--out", "out") == 0
    assert 'href="crash-7-count-2.html"' in (Path("out") / "happy-7-count-2.html").read_text(encoding="utf-8")
    assert 'href="happy-7-count-2.html"' in (Path("out") / "crash-7-count-2.html").read_text(encoding="utf-8")


def test_broken_variants_of_several_scenarios_are_no_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "lab", "run", "happy", "crash", "--broken", "--out", "out") == 4
    written = capsys.readouterr()
    assert [line.split("\t")[:2] for line in written.out.splitlines()[1:]] == [["happy", "breaks"], ["crash", "breaks"]]
    assert written.err.splitlines()[1].startswith("2 break as they must. ")
    assert "✕" not in written.err
    assert "  report  out/crash-7-broken.html" in written.err
    assert 'href="crash-7-broken.html"' in (Path("out") / "happy-7-broken.html").read_text(encoding="utf-8")


def test_the_broken_variant_alone_exits_with_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "lab", "run", "happy", "--broken", "--json") == 4
    shown = json.loads(capsys.readouterr().out)
    assert list(shown["variants"]) == ["broken"]
    assert Path(shown["report"]).exists()
    assert Path(shown["variants"]["broken"]["history"]).exists()
    assert shown["seed"] == 7


def test_a_knob_that_hides_the_failure_exits_with_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISIBILITY_TIMEOUT", "4")
    assert run_command(monkeypatch, "lab", "run", "duplicates", "--count", "1") == 4
    assert "again   penstock lab run duplicates --seed 7 --count 1 --visibility-timeout 4" in capsys.readouterr().out


USAGE = [
    (["happi"], "No scenario named happi. Did you mean happy?"),
    (["nonsense"], "No scenario named nonsense."),
    ([], "needs a scenario"),
    (["happy", "--all"], "not both"),
    (["happy", "--count", "0"], "--count must be 1 to 10000, not 0"),
    (["happy", "--count", "x"], "--count must be a whole number, not 'x'"),
    (["happy", "--batch-size", "11"], "--batch-size must be 1 to 10, not 11"),
    (["happy", "--slow-seconds", "3"], "happy has no knob slow-seconds"),
    (["happy", "--knob", "cuont=3"], "happy has no knob cuont. Did you mean count?"),
    (["happy", "--knob", "count"], "--knob is NAME=VALUE"),
    (["happy", "--endpoint", "localhost"], "--endpoint is a URL or aws"),
    (["happy", "--endpoint", "http://127.0.0.1:1", "--store", "memory:"], "--store is for the lab's own server"),
    (["happy", "--store", "nonsense"], "The store's address has no scheme."),
    (["happy", "--profile", "nope"], "There is no such profile in the AWS configuration."),
    (["happy", "--out", "/proc/x"], "Reports cannot be written to /proc/x."),
    (["double-send", "--knob", "fifo=2"], "--knob fifo must be 0 to 1, not 2"),
    (["happy", "--conut", "3"], "has no flag --conut. Did you mean --count?"),
]


@pytest.mark.parametrize(("arguments", "said"), USAGE)
def test_usage_errors_exit_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run_command(monkeypatch, "lab", "run", *arguments) == 2
    written = capsys.readouterr()
    assert said in written.err
    assert written.out == ""
    assert not Path("lab").exists()


def test_an_endpoint_that_does_not_answer_exits_with_6(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.__kwdefaults__ is not None
    defaults = client.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "tries", 1)
    assert run_command(monkeypatch, "lab", "run", "happy", "--endpoint", "http://127.0.0.1:9") == 6
    assert "error: Cannot reach the endpoint." in capsys.readouterr().err


def test_credentials_that_are_refused_exit_with_5(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = AccessKey(id="AKIAONE", secret="a-secret-of-some-length", account="000000000000", user="ada", policy=Policy())
    with serve(ServerConfig(port=0, store="memory:", keys=(key,))) as guarded:
        assert run_command(monkeypatch, "lab", "run", "happy", "--endpoint", guarded.url) == 5
    written = capsys.readouterr().err
    assert "denied: The credentials are not accepted." in written
    assert "  try  set AWS_PROFILE" in written


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class NoCredentialsError(Exception):
    """As botocore calls it."""


def test_no_credentials_are_not_credentials_that_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(failure_of(NoCredentialsError("Unable to locate credentials"))) == 5
    said = "denied: No AWS credentials found.\n  try  aws configure, or set AWS_PROFILE\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_queue_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server: Any, command: str
) -> None:
    monkeypatch.setenv("QUEUE_URL", f"{server.url}/000000000000/nowhere")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        assert run_command(monkeypatch, "lab", command) == 3
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    written = capsys.readouterr().err
    assert f"error: There is no queue nowhere in eu-west-1 at {server.url}.\n  try  penstock lab up" in written


@pytest.mark.parametrize(("command", "code"), [("produce", 2), ("consume", 1)])
def test_without_a_queue_the_way_to_one_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, code: int
) -> None:
    Path(".env").write_text("QUEUE_URL=https://sqs.us-west-1.amazonaws.com/1/of-another-project\nSECRET=hush\n")
    assert run_command(monkeypatch, "lab", command) == code
    said = "error: No queue: QUEUE_URL is not set.\n  try  penstock lab up, or source scripts/set_env.sh\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadValue("X must be 1."), 2),
        (Missing("There is no queue q."), 3),
        (ClientError("AWS.SimpleQueueService.NonExistentQueue"), 3),
        (ClientError("ResourceNotFoundException"), 3),
        (ClientError("AccessDeniedException"), 5),
        (ClientError("InvalidClientTokenId"), 5),
        (ClientError("InternalError"), 1),
        (ValueError("?"), 1),
    ],
)
def test_errors_have_their_exit_codes(error: Exception, code: int) -> None:
    assert failure_of(error).exit_code == code


def test_a_report_of_what_was_not_run_exits_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "lab", "report") == 3
    assert run_command(monkeypatch, "lab", "report", "crash") == 3
    assert "crash has not been run yet." in capsys.readouterr().err


def test_messages_are_produced_and_consumed_by_hand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sqs: Any
) -> None:
    url = sqs.create_queue(QueueName="orders", Attributes={"ReceiveMessageWaitTimeSeconds": "0"})["QueueUrl"]
    monkeypatch.setenv("AWS_REGION", "us-west-1")
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        assert run_command(monkeypatch, "lab", "produce", "--n", "3", "--queue-url", url) == 0
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    assert "✓ 3 messages sent in " in capsys.readouterr().err
    environment = os.environ | {"QUEUE_URL": url, "MESSAGE_LIMIT": "3", "WAIT_TIME_SECONDS": "0"}
    ended = subprocess.run([sys.executable, "-m", "penstock", "lab", "consume"], env=environment, check=False)
    assert ended.returncode == 0
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == counts["ApproximateNumberOfMessagesNotVisible"] == "0"


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("run happy", "--seed"),
        ("up", "--port"),
        ("produce", "--n"),
        ("produce", "--batch-size"),
        ("produce", "--poison-count"),
        ("produce", "--poison-every"),
    ],
)
def test_whole_numbers_are_not_rounded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, flag: str
) -> None:
    assert run_command(monkeypatch, "lab", *command.split(), flag, "1.5") == 2
    assert f"error: {flag} must be a whole number, not 1.5." in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--batch-size", "11"], ["--n", "-1"], ["--poison-count", "11"], []])
def test_what_the_producer_cannot_do_exits_with_2(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    url = ["--queue-url", "http://127.0.0.1:9/1/q"] if arguments else []
    assert run_command(monkeypatch, "lab", "produce", *arguments, *url) == 2


def test_validate_lists_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sqs: Any, server: Any
) -> None:
    place = ["--endpoint", server.url, "--tables", "none"]
    assert run_command(monkeypatch, "lab", "validate", "happy", *place) == 3
    written = capsys.readouterr()
    assert "sqs-demo-happy-queue\tthere is no such queue\n" in written.out
    assert written.err.splitlines() == [
        "error: Nothing is there.",
        f"  why  none of the 2 queues and tables is in us-west-1 at {server.url}",
        "  try  penstock lab up, or make infra-up",
    ]
    sqs.create_queue(QueueName="sqs-demo-happy-dlq")
    sqs.create_queue(
        QueueName="sqs-demo-happy-queue",
        Attributes={"VisibilityTimeout": "10", "ReceiveMessageWaitTimeSeconds": "10"},
    )
    assert run_command(monkeypatch, "lab", "validate", "happy", *place) == 3
    written = capsys.readouterr()
    assert written.out.startswith("sqs-demo-happy-queue\tit has no RedrivePolicy")
    assert "1 fault in the resources of 1 scenario." in written.err


def test_a_terminal_gets_the_first_of_many_faults(monkeypatch: pytest.MonkeyPatch, server: Any) -> None:
    with Terminal() as terminal:
        monkeypatch.setattr(sys, "stdout", terminal.stream)
        assert run_command(monkeypatch, "lab", "validate", "--endpoint", server.url, "--tables", "none") == 3
        monkeypatch.undo()
    assert len(terminal.screen.splitlines()) == 11
    assert terminal.screen.splitlines()[-1].startswith("  and ")


def test_the_live_view_of_many_names_the_one_that_runs(tmp_path: Path) -> None:
    with Terminal() as terminal:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        ended = subprocess.run(
            [sys.executable, "-m", "penstock", "lab", "run", "happy", "crash"],
            env=environment | UTF8,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=terminal.stream,
            check=False,
        )
    assert ended.returncode == 0
    assert re.search(r"\n  (\x1b\[1m)?(happy|crash)(\x1b\[0?m)?\n", terminal.raw)


def run_until_processes_have_started(folder: Path, stderr: TextIO, *arguments: str) -> tuple[Any, list[Any]]:
    """Run scenarios as a process, and return it and its children: the nursery, and a consumer or producer of it."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "lab", "run", *arguments],
        env=environment | {"TMPDIR": str(folder), "TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        process_group=0,
    )
    end_s = time.monotonic() + 30
    family: list[psutil.Process] = []
    while len(family) < 2 and time.monotonic() < end_s:
        family = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    assert len(family) >= 2
    return process, family


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_what_stops_a_run_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("it is ignored here, as under nohup, and stays so")
    with Terminal() as terminal, serve(ServerConfig(port=0, store="memory:", clock="system")) as elsewhere:
        process, family = run_until_processes_have_started(
            tmp_path, terminal.stream, "crash", "--endpoint", elsewhere.url
        )
        while "\x1b[?25l" not in terminal.raw:
            time.sleep(0.01)
        os.kill(process.pid, number)
        assert process.wait(30) == code
        sqs = elsewhere.sqs_client(region_name="us-west-1")
        assert sqs.list_queues().get("QueueUrls", []) == []
        sqs.close()
    assert [child for child in family if child.is_running()] == []
    assert list(tmp_path.glob("penstock-lab-*")) == []
    assert terminal.raw.endswith("\x1b[?25hStopped.\n")


@pytest.mark.slow
def test_a_run_that_is_stopped_says_how_far_it_was(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w+") as stderr:
        process, _ = run_until_processes_have_started(tmp_path, stderr, "happy", "crash", "--real-time")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
    assert (tmp_path / "stderr").read_text() == "Stopped. 0 of 2 scenarios had finished.\n"


def test_what_a_process_wrote_is_shown_line_by_line() -> None:
    failure = failure_of(ScenarioFailed("A ended with 70:\nTraceback\nKeyError: 'id'"))
    assert (failure.what, failure.exit_code) == ("A ended with 70:", 1)
    assert failure.why == ["Traceback", "KeyError: 'id'"]
