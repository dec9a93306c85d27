"""Signs, colours, values and suggestions: tables of what becomes what."""

from __future__ import annotations

import pytest

from penstock.cli.terminal.colours import ColorChoice, colours_wanted, painted
from penstock.cli.terminal.signs import Signs, ascii_wanted
from penstock.cli.terminal.suggestions import closest
from penstock.cli.terminal.text import Span, cells, cut_line, harmless, wrap
from penstock.cli.terminal.tracebacks import LINES_MAX, of_library, short_path, traceback_lines
from penstock.cli.terminal.values import coarse_duration, count, counted, duration, size, whole_duration

TERMINAL = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "wanted"),
    [
        ("auto", TERMINAL, True, True),
        ("auto", TERMINAL, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {**TERMINAL, "NO_COLOR": "1"}, True, False),
        ("auto", {**TERMINAL, "NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colours_follow_flags_then_the_environment_then_the_terminal(
    choice: ColorChoice, environment: dict[str, str], terminal: bool, wanted: bool
) -> None:
    assert colours_wanted(choice, environment, terminal=terminal) is wanted


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "C.utf8"}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": ""}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "ja_JP.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, True),
        ({"LANG": "en_US.UTF-8", "TERM": "dumb"}, True),
        ({"LANG": "en_US.UTF-8", "PENSTOCK_ASCII": "1"}, True),
        ({"LANG": "en_US.UTF-8", "PENSTOCK_ASCII": "0"}, False),
    ],
)
def test_ascii_is_used_where_signs_may_not_show(environment: dict[str, str], wanted: bool) -> None:
    assert ascii_wanted(environment) is wanted


def test_without_a_locale_the_encoding_decides() -> None:
    assert ascii_wanted({}, "ANSI_X3.4-1968")
    assert not ascii_wanted({}, "utf-8")


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0 s"),
        (0.0004, "1 ms"),
        (0.031, "31 ms"),
        (0.0996, "0.1 s"),
        (0.3, "0.3 s"),
        (9.0, "9 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (42.4, "42 s"),
        (59.6, "1 min"),
        (62, "1 min 02 s"),
        (955, "15 min 55 s"),
        (3_599.7, "1 h"),
        (7_560, "2 h 06 min"),
        (86_399, "1 day"),
        (93_600, "1 day 2 h"),
        (518_400, "6 days"),
        (-1, "0 s"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, written: str) -> None:
    assert duration(seconds) == written


def test_other_values_have_units_and_commas() -> None:
    assert (whole_duration(9.3), coarse_duration(1_580), coarse_duration(97)) == ("9 s", "26 min", "1 min 37 s")
    assert (count(55_728), counted(1, "job"), counted(2_000, "job")) == ("55,728", "1 job", "2,000 jobs")
    assert [size(number) for number in (0, 1_023, 1_024, 3_435_973_837)] == ["0 B", "1,023 B", "1.0 KiB", "3.2 GiB"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("café 日本", "café 日本"),
        ("\x1b[2J\x07\x7f\x9b", "\\x1b[2J\\x07\\x7f\\x9b"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202e\u200b\u2028\ue000", "\\u202e\\u200b\\u2028\\ue000"),
        ("\ud800\U000e0001", "\\ud800\\U000e0001"),
    ],
)
def test_text_of_others_is_made_harmless(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_width_is_counted_in_cells() -> None:
    assert [cells(text) for text in ("abc", "日本", "e\u0301", "↻")] == [3, 4, 1, 1]
    assert cut_line([Span("ab"), Span("日本", "dim")], 5) == [Span("ab"), Span("日", "dim")]


def test_lines_break_at_spaces_and_keep_their_styles() -> None:
    line = [Span("one two", "dim"), Span("-three  four")]
    assert wrap(line, 10) == [[Span("one", "dim")], [Span("two", "dim"), Span("-three")], [Span("four")]]
    assert wrap([Span("abcdefgh ij")], 3) == [[Span("abc")], [Span("def")], [Span("gh")], [Span("ij")]]
    assert wrap([], 10) == [[]]


def test_names_and_ids_are_cut_in_their_middle() -> None:
    signs, plain = Signs(ascii_only=False), Signs(ascii_only=True)
    job = "019a8f51-a1c0-7e02-b1aa-90f3d2118c17"
    assert (signs.job(job), plain.job(job)) == ("019a8f51-a1c0…8c17", "019a8f51-a1c0..8c17")
    assert signs.job("short") == "short"
    assert signs.name("a" * 20 + "b" * 20) == "a" * 16 + "…" + "b" * 15
    assert plain.name("queue") == "queue"


def test_no_style_is_a_background_or_a_bright_colour() -> None:
    assert painted([Span("a", "bold red"), Span("b")], colours=True) == "\x1b[1;31ma\x1b[0mb"
    assert painted([Span("a", "bold red"), Span("b")], colours=False) == "ab"


@pytest.mark.parametrize(
    ("word", "meant"),
    [("prot", "port"), ("prt", "port"), ("hots", "host"), ("xy", None), ("portal", "port"), ("serving", None)],
)
def test_a_name_at_most_two_letters_away_is_suggested(word: str, meant: str | None) -> None:
    assert closest(word, ["port", "host", "store"]) == meant


def test_frames_of_python_and_of_packages_are_not_your_own() -> None:
    assert of_library("/usr/lib/python3/dist-packages/yaml/__init__.py")
    assert of_library("<frozen runpy>")
    assert of_library(pytest.__file__)
    assert not of_library("/home/me/shop/mail.py")
    assert short_path("/x/.venv/lib/python3.12/site-packages/aiosmtplib/smtp.py") == "aiosmtplib/smtp.py"


def test_a_long_traceback_loses_its_middle() -> None:
    lines = traceback_lines("\n".join(f"  line {number}" for number in range(500)))
    assert len(lines) == LINES_MAX + 1
    assert "400 lines left out" in lines[40][1].text
    assert lines[-1][1].text == "  line 499"


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    lines = wrap([Span("attempt 1 of 3, in 0.4 s")], 22)
    assert ["".join(span.text for span in line) for line in lines] == ["attempt 1 of 3, in", "0.4 s"]
