"""What the first eight scenarios tell: the proof of each failure, its picture, and what a seed decides."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from penstock.cli.lab.run import run as run_scenarios
from penstock.cli.lab.verdicts import plain, verdict
from penstock.cli.terminal.screen import Screen
from penstock.lab.checkers.evidence import Check
from penstock.lab.history import Event, History
from penstock.lab.knobs import FLAGS, Knob, turned
from penstock.lab.laboratory import Laboratory, LabSettings, command_of
from penstock.lab.recording import read_history
from penstock.lab.run import Run
from penstock.lab.scenarios import NAMES, scenario
from tests.unit.cli.terminals import UTF8, Terminal
from tests.unit.cli.test_usage import run as run_command

STORIES = (
    "happy",
    "crash",
    "duplicates",
    "business-idempotency",
    "poison",
    "partial-batch",
    "side-effects",
    "graceful-shutdown",
)


@pytest.fixture(scope="module")
def runs(sqlite_laboratory: Laboratory) -> dict[str, Run]:
    return {name: run_of(sqlite_laboratory, name) for name in STORIES}


def run_of(laboratory: Laboratory, name: str) -> Run:
    played = scenario(name)
    return laboratory.run(played, turned(played.knobs, {}, {}))


def proof(run: Run) -> tuple[Check, list[Event]]:
    assert run.broken is not None
    check = run.broken.check(run.breaks)
    assert check is not None
    assert check.verdict == "failed"
    return check, [run.broken.history.events[i - 1] for i in check.witness]


PROOFS = {
    "happy": ["send ok", "receive ok"],
    "crash": ["receive ok", "delete ok", "crash info"],
    "duplicates": ["receive ok", "receive ok", "effect ok", "effect ok"],
    "business-idempotency": ["effect ok", "effect ok"],
    "poison": ["receive ok", "receive ok", "receive ok"],
    "partial-batch": ["receive ok", "receive ok"],
    "side-effects": ["receive ok", "receive ok", "effect ok", "effect ok"],
    "graceful-shutdown": ["receive ok", "signal info"],
}


@pytest.mark.parametrize("name", STORIES)
def test_the_witnesses_prove_that_the_rule_is_broken(runs: dict[str, Run], name: str) -> None:
    check, events = proof(runs[name])
    assert [f"{event.f} {event.type}" for event in events] == PROOFS[name]
    messages = {event.message for event in events if event.message is not None}
    if name == "business-idempotency":
        assert len(messages) == 2
        assert len({event.key for event in events}) == 1
    else:
        assert messages == {check.message}


PICTURES = {
    "happy": """\
      0 s       5        10        15      20
    A ●▣◆━━━━━━━━━━━━━━━━↻◇━━━━━━━━━━━━━━━━━     †  done, but received twice""",
    "crash": """\
             20 ms     30        40         50
    A ●▣━━━━━━━━━━━━━━━━━━━━━━━━✓╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌✕  deletes it, then crashes""",
    "business-idempotency": """\
         0 ms    200    400     600    800    1,000
    m1 A ●▣━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━◆━✓
    m2 B ●▣━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━◆━━✓  the second call""",
    "poison": """\
      0 s      10      20       30      40      50
    A ●▣◇━━━━━━↻◇━━━━━━↻◇━━━━━━━↻◇━━━━━━↻◇━━━━━━↻◇  received 6 times""",
    "partial-batch": """\
      0 s            10           20          30
    A ●▣◆━━━━━━━━━━━━↻◇━━━━━━━━━━━━              †  done, but received twice""",
    "side-effects": """\
       0 s    10    20    30    40       50     60
    1a ●▣✕·····                                      crashes before step 1
    2a        ↻✕·····                                crashes before step 2
    3a              ↻✕·····                          crashes before step 3
    4a                    ↻━━━━━━╌╌╌╌◆✕              calls again, then crashes
    5a                          ↻◆✕·······           calls, then crashes
    6a                                   ↻◆✕·····    calls again, then crashes
    7a                                          ↻◆✓  gets it again, calls again""",
    "graceful-shutdown": """\
      0 s       2        4       6       8       10
                SIGTERM
    A ●▣━━━━━━━━!✕································  exit 143, its work is cut off""",
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_in_a_terminal_tells_what_happened(runs: dict[str, Run], name: str) -> None:
    with Terminal() as terminal:
        screen = Screen(terminal.stream, environment=UTF8)
        lines = plain(verdict(screen, runs[name]))
    assert PICTURES[name] in "\n".join(line.rstrip() for line in lines.splitlines())


def test_a_picture_needs_no_unicode(runs: dict[str, Run]) -> None:
    with Terminal() as terminal:
        screen = Screen(terminal.stream, environment={"TERM": "dumb", "LC_ALL": "C"})
        screen.write(verdict(screen, runs["graceful-shutdown"]))
    assert "    A o#========!x......" in terminal.screen


def decisions(history: History) -> dict[str, list[tuple[object, ...]]]:
    """Return what each process did, in order, with the faults that it met."""
    made: dict[str, list[tuple[object, ...]]] = {}
    for event in history.events:
        done = (event.f, event.type, event.body_id, event.t_ms, event.count, event.step, event.fault, event.code)
        made.setdefault(event.process, []).append(done)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_the_same_seed_gives_the_same_decisions_and_faults(
    runs: dict[str, Run], sqlite_laboratory: Laboratory, name: str
) -> None:
    again = run_of(sqlite_laboratory, name)
    for one, other in zip(runs[name].variants, again.variants, strict=True):
        assert decisions(one.history) == decisions(other.history)
        assert one.checks == other.checks


def fates(history: History) -> dict[str, list[tuple[object, ...]]]:
    """Return what happened to each message, in order."""
    made: dict[str, list[tuple[object, ...]]] = {}
    for event in history.events:
        if event.message is not None:
            made.setdefault(event.message, []).append((event.f, event.type, event.count, event.step, event.fault))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["duplicates", "side-effects"])
def test_the_store_decides_nothing(runs: dict[str, Run], postgres_laboratory: Laboratory, name: str) -> None:
    """Of messages that come back at one instant, PostgreSQL may give another one first than SQLite."""
    other = run_of(postgres_laboratory, name)
    assert fates(runs[name].protected.history) == fates(other.protected.history)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["duplicates --visibility-timeout 4 --count 2", "crash --broken --seed 3"])
def test_a_run_that_fails_can_be_replayed_by_the_command_of_its_report(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(monkeypatch, "lab", "run", *given.split(), "--out", "first") == 4
    [command] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  again")]
    program, *words = shlex.split(command.removeprefix("  again"))
    assert program == "penstock"
    assert run_command(monkeypatch, *words, "--out", "second") == 4
    kept = sorted(path.name for path in Path("first").glob("*.jsonl"))
    assert kept
    for file in kept:
        assert decisions(read_history(Path("first") / file)) == decisions(read_history(Path("second") / file))


def test_a_command_sets_what_is_no_flag_by_its_name() -> None:
    happy = scenario("happy")
    knobs = turned(happy.knobs, {"count": "10000"}, {})
    assert command_of(happy, knobs, LabSettings(seed=3)) == "penstock lab run happy --seed 3 --count 10000"
    assert Knob("patience", 1.0, "").words(2.5) == ["--knob", "patience=2.5"]


def test_a_command_names_the_store_and_the_tables_without_a_password() -> None:
    happy = scenario("happy")
    settings = LabSettings(store="postgresql://lab:secret@db/lab", project="mine", region="eu-west-1")
    command = command_of(happy, turned(happy.knobs, {}, {}), settings)
    assert command == (
        "penstock lab run happy --seed 7 --store postgresql://lab@db/lab --region eu-west-1 --project mine"
    )
    elsewhere = LabSettings(endpoint="http://127.0.0.1:5000", tables="dynamodb:http://127.0.0.1:5000", profile="my lab")
    command = command_of(happy, turned(happy.knobs, {}, {}), elsewhere)
    assert command.endswith("--tables dynamodb:http://127.0.0.1:5000 --profile 'my lab'")


def test_every_flag_for_a_knob_is_a_flag_of_the_command() -> None:
    flags = {
        name.replace("_", "-") for name, kind in run_scenarios.__annotations__.items() if kind in {"Number", "Seconds"}
    }
    assert flags == FLAGS


@pytest.mark.parametrize("name", NAMES)
def test_what_a_report_says_to_try_is_a_command_that_runs(name: str) -> None:
    found = scenario(name)
    assert f"penstock lab run {name}" in found.try_command
    words = found.try_command.partition(f"penstock lab run {name}")[2].split()
    flags = [word.removeprefix("--") for word in words if word.startswith("--")]
    known = {knob.name for knob in found.knobs}
    assert {flag for flag in flags if flag not in known} <= {"open", "broken", "real-time", "knob"}
    assert {flag for flag in flags if flag in known} <= FLAGS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["poison", "--count", "3", "--poison-count", "5"], "--poison-count must be at most --count, 3, not 5."),
        (["side-effects", "--count", "51"], "--count must be"),
        (["graceful-shutdown", "--sigterm-delay", "soon"], "--sigterm-delay must be"),
        (["partial-batch", "--copies", "2"], "partial-batch has no knob copies."),
    ],
)
def test_a_bad_knob_is_a_usage_error(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "lab", "run", *arguments) == 2
    assert said in capsys.readouterr().err


def test_a_run_without_the_failure_is_not_told_as_if_it_had_happened(sqlite_laboratory: Laboratory) -> None:
    played = scenario("duplicates")
    run = sqlite_laboratory.run(played, turned(played.knobs, {"visibility-timeout": "4", "count": "1"}, {}))
    assert run.told.startswith("This run says nothing about the rule. Each message is received at least twice:")


def test_a_lab_without_boto3_says_so_before_it_starts_anything(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("penstock.lab.endpoints.find_spec", lambda _name: None)
    assert run_command(monkeypatch, "lab", "run", "happy") == 1
    assert capfd.readouterr().err.splitlines() == ["error: The lab needs boto3.", "  try  pip install 'penstock[sqs]'"]
