"""Histories: written by several processes at once, merged in order, and read without leniency."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from pathlib import Path

import msgspec
import pytest

from penstock.lab.history import Header, History
from penstock.lab.recording import LINE_BYTES_MAX, HistoryBroken, Recorder, merge, read_history, write_history
from tests.support.lab.runs import WRITTEN, script_of

HEADER = Header(seed=7, scenario="happy", endpoint="this server", versions={"penstock": "1"}, knobs={"count": 5})


def recorder(path: Path, process: str = "A", start_ns: int = 0) -> Recorder:
    ticks = itertools.count(start_ns, 10)
    return Recorder(path, process, now_ms=lambda: 3, mono_ns=lambda: next(ticks))


def test_an_event_has_the_fields_of_the_design_and_no_empty_ones(tmp_path: Path) -> None:
    with recorder(tmp_path / "a.jsonl") as made:
        made.record("ok", "receive", queue="q", message_id="m", receipt="r", count=2, attempt=None)
    [line] = (tmp_path / "a.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(line) == {
        "i": 1,
        "t_ms": 3,
        "mono_ns": 0,
        "process": "A",
        "type": "ok",
        "f": "receive",
        "queue": "q",
        "message_id": "m",
        "receipt": "r",
        "count": 2,
    }


def test_a_message_goes_by_the_id_in_its_body(tmp_path: Path) -> None:
    with recorder(tmp_path / "a.jsonl") as made:
        assert made.record("ok", "send", message_id="q", body_id="b").message == "b"
        assert made.record("ok", "send", message_id="q").message == "q"
        assert made.record("ok", "purge").message is None


@pytest.mark.parametrize(
    ("event_type", "f", "fields"),
    [("maybe", "send", {}), ("ok", "dream", {}), ("ok", "send", {"colour": "red"}), ("ok", "send", {"count": "two"})],
)
def test_what_no_event_has_is_refused_and_not_written(
    tmp_path: Path, event_type: str, f: str, fields: dict[str, object]
) -> None:
    with recorder(tmp_path / "a.jsonl") as made:
        with pytest.raises(msgspec.ValidationError):
            made.record(event_type, f, **fields)
        made.record("ok", "send")
    assert len(merge(HEADER, [tmp_path / "a.jsonl"]).events) == 1


def test_an_event_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with recorder(tmp_path / "a.jsonl") as made, pytest.raises(HistoryBroken, match="at most"):
        made.record("ok", "send", what="x" * LINE_BYTES_MAX)
    assert (tmp_path / "a.jsonl").read_bytes() == b""


def test_events_of_several_processes_are_merged_by_the_machine_s_clock(tmp_path: Path) -> None:
    with recorder(tmp_path / "b.jsonl", "B", 5) as second, recorder(tmp_path / "a.jsonl", "A", 0) as first:
        for _ in range(3):
            second.record("ok", "send")
            first.record("ok", "receive")
    merged = merge(HEADER, [tmp_path / "b.jsonl", tmp_path / "a.jsonl"])
    assert [event.process for event in merged.events] == ["A", "B"] * 3
    assert [event.i for event in merged.events] == [1, 2, 3, 4, 5, 6]
    assert merged == merge(HEADER, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])


def _write(path: Path, count: int) -> None:
    with Recorder(path, "shared", now_ms=lambda: 0) as made:
        for _ in range(count):
            made.record("ok", "send", body_id="x" * 2_000)


@pytest.mark.slow
def test_processes_and_threads_that_share_a_file_leave_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "shared.jsonl"
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_write, args=(path, 50)) for _ in range(2)]
    for child in children:
        child.start()
    with Recorder(path, "threads", now_ms=lambda: 0) as made:
        threads = [threading.Thread(target=lambda: [made.record("ok", "send") for _ in range(50)]) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for child in children:
        child.join()
        assert child.exitcode == 0
    events = merge(HEADER, [path]).events
    assert len(events) == 200
    numbers = [event.mono_ns for event in events if event.process == "threads"]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("scenario", WRITTEN)
def test_a_history_is_read_as_it_was_written(tmp_path: Path, scenario: str) -> None:
    history = script_of(scenario).history
    write_history(history, tmp_path / "h.jsonl")
    assert read_history(tmp_path / "h.jsonl") == history


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "empty"),
        (lambda lines: lines[1:], "line 1: no header"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 3: event 3 stands in place 2"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2: event 2 stands in place 1"),
        (lambda lines: [*lines[:2], b"{", *lines[3:]], "line 3"),
        (lambda lines: [*lines[:2], lines[2].replace(b'"f"', b'"g"'), *lines[3:]], "line 3"),
        (
            lambda lines: [*lines[:2], lines[2].replace(b'"mono_ns":2000', b'"mono_ns":1'), *lines[3:]],
            "happened before",
        ),
    ],
)
def test_anything_but_a_history_is_refused_with_its_line(tmp_path: Path, change: object, message: str) -> None:
    path = tmp_path / "h.jsonl"
    write_history(script_of("happy").history, path)
    assert callable(change)
    path.write_bytes(b"".join(line + b"\n" for line in change(path.read_bytes().splitlines())))
    with pytest.raises(HistoryBroken, match=message):
        read_history(path)


def test_a_line_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_history(script_of("happy").history, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(HistoryBroken, match="cut off"):
        read_history(path)


def test_an_empty_run_is_a_history_too(tmp_path: Path) -> None:
    write_history(History(header=HEADER, events=()), tmp_path / "h.jsonl")
    assert read_history(tmp_path / "h.jsonl").events == ()
