"""The consumer's variables: each value is read or refused, and each does what its description says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.lab.consumer_settings import VARIABLES, ConsumerSettings, QueueUrlMissing
from penstock.lab.environment import QueueSettings
from penstock.lab.handling import CRASHED, SeenIds
from penstock.lab.laboratory import Laboratory
from penstock.lab.payloads import POISON_MARKER
from penstock.lab.producer import Draft
from penstock.lab.stage import Stage
from penstock.lab.variables import BadValue
from tests.lab.playing import play
from tests.unit.cli.test_usage import run as run_command

URL = "http://127.0.0.1:9324/000000000000/orders"

DEFAULTS = {
    "wait_time_seconds": 10,
    "max_messages": 1,
    "crash_rate": 0.0,
    "crash_after_receive": False,
    "idempotency_cache_size": 1_000,
    "message_limit": 0,
    "idle_timeout_seconds": 0.0,
    "reject_payload_marker": "",
    "message_status_table": "",
    "message_side_effects_table": "",
    "side_effect_delay_seconds": 0.0,
    "crash_after_side_effect": False,
    "side_effect_log_path": "",
    "side_effect_log_field": "sequence",
    "business_idempotency_field": (),
    "log_level": "INFO",
    "versioning": None,
}


def test_the_defaults_are_those_of_the_table() -> None:
    settings = ConsumerSettings.read({"QUEUE_URL": URL})
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS


READ: list[tuple[str, str, object]] = [
    ("WAIT_TIME_SECONDS", "0", 0),
    ("WAIT_TIME_SECONDS", "20", 20),
    ("MAX_MESSAGES", "25", 25),
    ("CRASH_RATE", "0.25", 0.25),
    ("CRASH_AFTER_RECEIVE", "1", True),
    ("CRASH_AFTER_RECEIVE", "2", True),
    ("CRASH_AFTER_SIDE_EFFECT", "0", False),
    ("IDEMPOTENCY_CACHE_SIZE", "0", 0),
    ("IDLE_TIMEOUT_SECONDS", "2.5", 2.5),
    ("BUSINESS_IDEMPOTENCY_FIELD", "order_id, action", ("order_id", "action")),
    ("LOG_LEVEL", "debug", "DEBUG"),
    ("CRASH_AT_STEPS", "1,6", (1, 6)),
    ("TABLES_URL", "dynamodb:http://127.0.0.1:8000", "dynamodb:http://127.0.0.1:8000"),
    ("MESSAGE_LIMIT", "", 0),
]


@pytest.mark.parametrize(("variable", "text", "value"), READ)
def test_a_value_is_read(variable: str, text: str, value: object) -> None:
    settings = ConsumerSettings.read({"QUEUE_URL": URL, variable: text})
    assert getattr(settings, variable.lower()) == value


REFUSED = [
    ("QUEUE_URL", "orders", "must begin with http"),
    ("WAIT_TIME_SECONDS", "21", "must be 0 to 20"),
    ("WAIT_TIME_SECONDS", "-1", "must be 0 to 20"),
    ("WAIT_TIME_SECONDS", "ten", "must be a whole number"),
    ("MAX_MESSAGES", "0", "must be 1 or more"),
    ("MAX_MESSAGES", "1.5", "must be a whole number"),
    ("CRASH_RATE", "1.1", "must be 0.0 to 1.0"),
    ("CRASH_RATE", "nan", "must be a finite number"),
    ("CRASH_AFTER_RECEIVE", "maybe", "must be 0 or 1"),
    ("CRASH_AFTER_SIDE_EFFECT", "soon", "must be 0 or 1"),
    ("IDEMPOTENCY_CACHE_SIZE", "-1", "must be 0 to"),
    ("MESSAGE_LIMIT", "-5", "must be 0 or more"),
    ("IDLE_TIMEOUT_SECONDS", "inf", "must be a finite number"),
    ("SIDE_EFFECT_DELAY_SECONDS", "-0.1", "must be 0.0 or more"),
    ("LOG_LEVEL", "LOUD", "must be DEBUG"),
    ("CRASH_AT_STEPS", "7", "must be of 1, 2"),
    ("TABLES_URL", "mysql:", "must be sqlite:PATH"),
    ("TABLES_URL", "sqlite:", "must be sqlite:PATH"),
    ("FLAWS", "laziness", "must be of delete-on-receive"),
    ("VERSIONING_ENABLED", "1", "VERSION_STATE_PATH is not set"),
]


@pytest.mark.parametrize(("variable", "text", "why"), REFUSED)
def test_a_bad_value_is_refused_by_name(variable: str, text: str, why: str) -> None:
    with pytest.raises(BadValue, match=why) as refused:
        ConsumerSettings.read({"QUEUE_URL": URL, variable: text})
    assert variable.split("_", maxsplit=1)[0] in str(refused.value)


@pytest.mark.parametrize("environment", [{}, {"QUEUE_URL": ""}])
def test_a_consumer_needs_a_queue(environment: dict[str, str]) -> None:
    with pytest.raises(QueueUrlMissing, match="QUEUE_URL is not set"):
        ConsumerSettings.read(environment)


def test_every_setting_has_its_variable() -> None:
    assert {"QUEUE_URL", "VERSION_KEY", "CRASH_RATE", "FLAWS"} <= VARIABLES


def test_the_help_names_every_variable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(monkeypatch, "lab", "consume", "--help") == 0
    assert set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", capsys.readouterr().out)) >= VARIABLES - {"FLAWS"}


@pytest.mark.parametrize(
    ("variables", "code", "said"), [({}, 1, "QUEUE_URL"), ({"QUEUE_URL": URL, "MAX_MESSAGES": "x"}, 2, "MAX_MESSAGES")]
)
def test_the_command_says_what_is_wrong_and_exits(variables: dict[str, str], code: int, said: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | variables
    ended = subprocess.run(
        [sys.executable, "-m", "penstock", "lab", "consume"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code
    assert said in ended.stderr


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    seen = SeenIds(2)
    seen.add("a")
    seen.add("b")
    assert "a" in seen  # A use: now b is the oldest.
    seen.add("c")
    assert "a" in seen
    assert "b" not in seen
    none = SeenIds(0)
    none.add("a")
    assert "a" not in none


# -- what each does, in a process of its own ----------------------------------------------------------


def one(stage: Stage, **body: Any) -> None:
    stage.produce([Draft(body={"id": "m1", **body})])


def test_a_limit_ends_it(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=5)
        stage.wait(stage.consumer("A", MESSAGE_LIMIT=3, MAX_MESSAGES=10))

    seen = play(sqlite_laboratory, do)
    assert len(seen.of("receive", "ok")) == len(seen.of("delete", "ok")) == 3


def test_a_receive_takes_ten_messages_at_most_and_the_log_says_so(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=12)
        consumer = stage.consumer("A", MESSAGE_LIMIT=12, MAX_MESSAGES=50)
        stage.wait(consumer)
        assert "MAX_MESSAGES is 50, and a receive takes at most 10" in consumer.output.read_text(encoding="utf-8")

    seen = play(sqlite_laboratory, do)
    instants = [event.t_ms for event in seen.of("receive", "ok")]
    assert [instants.count(t_ms) for t_ms in sorted(set(instants))] == [10, 2]


def test_a_business_key_is_used_without_a_table_too(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        orders = ["7", "7", "8"]
        stage.produce([Draft(body={"id": f"m{n}", "order_id": order}) for n, order in enumerate(orders)])
        told: dict[str, Any] = {"MESSAGE_SIDE_EFFECTS_TABLE": "", "BUSINESS_IDEMPOTENCY_FIELD": "order_id"}
        stage.wait(stage.consumer("A", MESSAGE_LIMIT=3, **told))

    seen = play(sqlite_laboratory, do)
    assert [call.message for call in seen.ledger or ()] == ["m0", "m2"]
    assert [event.what for event in seen.of("effect", "fail")] == ["left out: key seen by this process"]
    assert len(seen.of("delete", "ok")) == 3


@pytest.mark.parametrize(
    ("idle", "wait", "ends_ms"), [("5", 10, 5_000), ("2.5", 20, 2_500), ("12", 5, 12_000), ("0.4", 10, 400)]
)
def test_the_idle_timeout_counts_during_a_long_poll(
    sqlite_laboratory: Laboratory, idle: str, wait: int, ends_ms: int
) -> None:
    def do(stage: Stage) -> None:
        stage.wait(stage.consumer("A", IDLE_TIMEOUT_SECONDS=idle, WAIT_TIME_SECONDS=wait))

    seen = play(sqlite_laboratory, do)
    assert [event.t_ms for event in seen.of("exit")] == [ends_ms]


def test_a_marker_in_the_payload_rejects_a_message(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=6, poison_every=3)
        stage.wait(stage.consumer("A", REJECT_PAYLOAD_MARKER=POISON_MARKER, IDLE_TIMEOUT_SECONDS=25, MAX_MESSAGES=10))

    seen = play(sqlite_laboratory, do)
    poison = {event.message for event in seen.of("send") if event.poison}
    assert len(poison) == 2
    assert seen.dead is not None
    assert set(seen.dead.messages or ()) == poison
    assert {call.message for call in seen.ledger or ()} == set(seen.sent()) - poison


@pytest.mark.parametrize(
    ("variable", "step", "calls"), [("CRASH_AFTER_RECEIVE", 2, 0), ("CRASH_AFTER_SIDE_EFFECT", 4, 1)]
)
@pytest.mark.parametrize("tables", [True, False], ids=["tables", "no tables"])
def test_a_crash_ends_it_at_its_place(
    sqlite_laboratory: Laboratory, variable: str, step: int, calls: int, tables: bool
) -> None:
    def do(stage: Stage) -> None:
        one(stage)
        without: dict[str, Any] = {} if tables else {"MESSAGE_STATUS_TABLE": "", "MESSAGE_SIDE_EFFECTS_TABLE": ""}
        stage.wait(stage.consumer("A", **{variable: 1, **without}))

    seen = play(sqlite_laboratory, do)
    assert [event.step for event in seen.of("crash")] == [step]
    assert [event.code for event in seen.of("exit") if event.process == "A"] == [CRASHED]
    assert len(seen.ledger or ()) == calls
    assert not seen.of("delete")


def test_crashes_come_at_the_rate_that_the_seed_says(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=20)
        stage.wait(stage.consumer("A", CRASH_RATE=0.2, IDLE_TIMEOUT_SECONDS=2))

    runs = [play(sqlite_laboratory, do) for _ in range(2)]
    handled = [len(seen.of("effect", "ok")) for seen in runs]
    assert handled[0] == handled[1] < 20
    assert all(len(seen.of("crash")) == 1 for seen in runs)


def test_a_crash_before_each_step_leaves_one_call(laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        one(stage)
        while stage.counted("crash", "info") < 6:
            stage.wait(stage.consumer("A", CRASH_AT_STEPS="1,2,3,4,5,6", IDLE_TIMEOUT_SECONDS=30))
        stage.wait(stage.consumer("A", IDLE_TIMEOUT_SECONDS=30))

    seen = play(laboratory, do, QueueSettings(receives_max=10))
    assert [event.step for event in seen.of("crash")] == [1, 2, 3, 4, 5, 6]
    assert [call.message for call in seen.ledger or ()] == ["m1"]
    assert len(seen.of("delete", "ok")) == 1


def test_a_message_goes_by_its_payloads_id_or_else_the_queues(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.produce([Draft(body={"id": "mine"}), Draft(body={"work": 3})])
        stage.wait(stage.consumer("A", MESSAGE_LIMIT=2))

    seen = play(sqlite_laboratory, do)
    ids = {event.message_id for event in seen.of("receive")}
    calls = {call.message for call in seen.ledger or ()}
    assert "mine" in calls
    assert len(calls & ids) == 1


def test_orders_are_told_apart_by_all_their_fields(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        bodies = [("a", 1, "charge"), ("b", 1, "charge"), ("c", 1, "refund"), ("d", None, "charge")]
        stage.produce(
            [
                Draft(body={"id": id_, "action": action} | ({"order_id": order} if order else {}))
                for id_, order, action in bodies
            ]
        )
        stage.wait(stage.consumer("A", MESSAGE_LIMIT=4, BUSINESS_IDEMPOTENCY_FIELD="order_id,action"))

    seen = play(sqlite_laboratory, do)
    assert sorted(call.message for call in seen.ledger or ()) in (["a", "c", "d"], ["b", "c", "d"])


def test_effects_are_logged_by_the_field_that_is_named(sqlite_laboratory: Laboratory, tmp_path: Path) -> None:
    def do(stage: Stage) -> None:
        stage.produce([Draft(body={"id": str(n), "line": n * 10}) for n in range(3)])
        stage.wait(
            stage.consumer("A", MESSAGE_LIMIT=3, SIDE_EFFECT_LOG_PATH=tmp_path / "log", SIDE_EFFECT_LOG_FIELD="line")
        )

    play(sqlite_laboratory, do)
    assert sorted((tmp_path / "log").read_text(encoding="utf-8").split()) == ["0", "10", "20"]


def test_only_higher_versions_are_applied(sqlite_laboratory: Laboratory, tmp_path: Path) -> None:
    versions = [1, 3, 2, 3, 5, 4]

    def do(stage: Stage) -> None:
        stage.produce(
            [
                Draft(body={"id": str(n), "entity_id": "e", "version": version}, group="g", deduplication=str(n))
                for n, version in enumerate(versions)
            ]
        )
        stage.wait(
            stage.consumer(
                "A",
                MESSAGE_LIMIT=len(versions),
                VERSIONING_ENABLED=1,
                VERSION_STATE_PATH=tmp_path / "state",
                VERSION_LOG_PATH=tmp_path / "applied",
                VERSION_SEEN_LOG_PATH=tmp_path / "seen",
            )
        )

    seen = play(sqlite_laboratory, do, QueueSettings(fifo=True))
    assert [event.version for event in seen.of("apply", "ok")] == [1, 3, 5]
    assert [event.version for event in seen.of("apply", "fail")] == [2, 3, 4]
    assert (tmp_path / "state").read_text(encoding="utf-8") == '{"e": 5}'
    assert len((tmp_path / "applied").read_text(encoding="utf-8").splitlines()) == 3
    assert len((tmp_path / "seen").read_text(encoding="utf-8").splitlines()) == 6


def test_a_heartbeat_keeps_the_lease_during_slow_work(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        one(stage)
        first = stage.consumer("A", SIDE_EFFECT_DELAY_SECONDS=35, HEARTBEAT_SECONDS=4, MESSAGE_LIMIT=1)
        second = stage.consumer("B", IDLE_TIMEOUT_SECONDS=60)
        stage.wait(first, second)

    seen = play(sqlite_laboratory, do)
    assert [event.process for event in seen.of("receive")] == ["A"]
    assert len(seen.of("extend", "ok")) == 8


def test_a_stale_message_is_counted_and_has_no_effect(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        one(stage)
        stage.sleep(100)
        stage.produce([Draft(body={"id": "m2"})])
        stage.wait(stage.consumer("A", STALE_AFTER_SECONDS=60, MESSAGE_LIMIT=2))

    seen = play(sqlite_laboratory, do)
    assert [event.message for event in seen.of("effect", "fail")] == ["m1"]
    assert [call.message for call in seen.ledger or ()] == ["m2"]
    assert len(seen.of("delete", "ok")) == 2


def test_failed_work_is_tried_again_after_a_growing_pause(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        one(stage)
        stage.wait(stage.consumer("A", FAIL_RECEIVES=3, RETRY_BASE_SECONDS=2, MESSAGE_LIMIT=1))

    seen = play(sqlite_laboratory, do, QueueSettings(receives_max=10))
    instants = [event.t_ms for event in seen.of("receive")]
    pauses = [later - earlier for earlier, later in pairwise(instants)]
    assert [round(pause, -3) for pause in pauses] == [2_000, 4_000, 8_000]


def test_sigterm_lets_work_in_flight_end_and_takes_no_more(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=3)
        consumer = stage.consumer("A", SIDE_EFFECT_DELAY_SECONDS=5)
        stage.sleep(2)
        stage.terminate(consumer)
        stage.wait(consumer)
        assert "a second signal ends this at once" in consumer.output.read_text(encoding="utf-8")

    seen = play(sqlite_laboratory, do)
    assert [event.code for event in seen.of("exit") if event.process == "A"] == [0]
    assert len(seen.of("receive")) == len(seen.of("delete", "ok")) == 1
    assert seen.left is not None
    assert seen.left.count == 2


def test_a_second_signal_ends_it_at_once(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        stage.produce(n=1)
        consumer = stage.consumer("A", SIDE_EFFECT_DELAY_SECONDS=5)
        stage.sleep(2)
        stage.terminate(consumer)
        stage.sleep(1)
        stage.terminate(consumer)
        stage.wait(consumer)

    seen = play(sqlite_laboratory, do)
    last = seen.of("signal")[-1]
    assert [(event.t_ms, event.code) for event in seen.of("exit") if event.process == "A"] == [(last.t_ms, 143)]
    assert not seen.of("effect")


def test_what_comes_after_sigterm_goes_back_at_once(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        consumer = stage.consumer("A")
        stage.sleep(2)
        stage.terminate(consumer)
        one(stage)
        stage.wait(consumer)
        stage.wait(stage.consumer("B", MESSAGE_LIMIT=1))

    seen = play(sqlite_laboratory, do)
    assert [event.process for event in seen.of("receive")] == ["A", "B"]
    assert [call.process for call in seen.ledger or ()] == ["B"]
    assert seen.of("receive")[1].t_ms < 5_000


def test_sigterm_in_the_rest_of_the_idle_time_receives_nothing_more(sqlite_laboratory: Laboratory) -> None:
    """Each receive counts towards the dead-letter queue, also one whose messages are released."""

    def do(stage: Stage) -> None:
        consumer = stage.consumer("A", IDLE_TIMEOUT_SECONDS=0.9)
        stage.sleep(0.3)
        stage.terminate(consumer)
        one(stage)
        stage.wait(consumer)

    assert not play(sqlite_laboratory, do).of("receive")


def test_a_killed_consumer_is_reaped(sqlite_laboratory: Laboratory) -> None:
    def do(stage: Stage) -> None:
        consumer = stage.consumer("A")
        stage.sleep(3)
        stage.kill(consumer)
        stage.wait(consumer)
        assert consumer.code == -signal.SIGKILL

    assert [event.t_ms for event in play(sqlite_laboratory, do).of("exit")] == [3_000]


def test_a_stale_receipt_handle_is_a_warning(sqlite_laboratory: Laboratory) -> None:
    """On a FIFO queue the handle of a lease that is over deletes nothing."""

    def do(stage: Stage) -> None:
        stage.produce([Draft(body={"id": "m1"}, group="g", deduplication="1")])
        consumer = stage.consumer("A", SIDE_EFFECT_DELAY_SECONDS=15, MESSAGE_LIMIT=1)
        stage.wait(consumer)
        assert consumer.code == 0
        assert "receipt handle is stale" in consumer.output.read_text(encoding="utf-8")

    seen = play(sqlite_laboratory, do, QueueSettings(fifo=True))
    assert len(seen.of("delete", "fail")) == 1
