"""Reports: everything of a run in one file that asks for nothing else, and that shows what it was given as text."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from penstock.lab.checkers.evidence import Check
from penstock.lab.report.index import RunSummary, index_report, summary_of
from penstock.lab.report.page import run_report
from penstock.lab.report.scene import TICKS_MAX, ticks
from penstock.lab.report.style import content_security_policy
from penstock.lab.report.tables import ROWS_MAX
from penstock.lab.run import Run, Variant, run_json
from tests.support.lab.runs import HOSTILE, WRITTEN, hostile_run, run_of

VOID = {"meta", "link", "br", "input", "img"}


class Reading(HTMLParser):
    """Reads a page as strictly as a browser does not: every tag must be closed where it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open[-1] == tag
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data if not self.open or self.open[-1] != "style" else ""


def checked(page: str) -> Reading:
    read = Reading(page)
    assert len(read.ids) == len(set(read.ids))
    for tag, name, value in read.attributes:
        assert not name.startswith("on")
        assert name != "style"
        if name in {"href", "src"} and value.startswith("#"):
            assert value[1:] in read.ids, f"{tag} leads to {value}, which is not there"
    assert not read.tags & {"script", "img", "iframe", "object", "base", "form"}
    assert not re.search(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)\w", page.replace("ms // ", ""))
    return read


def verdicts(run: Run, verdict: str) -> Run:
    """Return the run with a protected variant whose every check ended so."""
    checks = tuple(msgspec.structs.replace(check, verdict=verdict) for check in run.protected.checks)
    return msgspec.structs.replace(run, protected=msgspec.structs.replace(run.protected, checks=checks))


@pytest.mark.parametrize("scenario", WRITTEN)
def test_a_report_is_whole_and_its_links_lead_somewhere(scenario: str) -> None:
    run = run_of(scenario)
    read = checked(run_report(run))
    for part in (scenario, run.story, "Protected: holds", "Broken: breaks, as it must", "Assertions", "Why it broke"):
        assert part in read.text
    assert {"p1", "b1"} <= set(read.ids)
    for variant in run.variants:
        for check in variant.checks:
            assert {f"{variant.name[0]}{i}" for i in check.witness} <= set(read.ids)


@pytest.mark.parametrize("scenario", WRITTEN)
def test_a_picture_of_nothing_can_be_drawn(scenario: str) -> None:
    run = run_of(scenario)

    def emptied(variant: Variant) -> Variant:
        history = msgspec.structs.replace(variant.history, events=())
        return msgspec.structs.replace(variant, history=history, checks=())

    assert run.broken is not None
    empty = msgspec.structs.replace(run, protected=emptied(run.protected), broken=emptied(run.broken))
    assert "Protected: unknown" in checked(run_report(empty)).text
    assert "unknown" in checked(index_report([summary_of(empty, "x.html")])).text


@pytest.mark.parametrize("scenario", WRITTEN)
def test_whatever_a_run_holds_is_shown_as_text(scenario: str) -> None:
    run = hostile_run(scenario)
    read = checked(run_report(run, index=HOSTILE, links={"happy": HOSTILE}))
    assert HOSTILE.replace("`", "") in read.text.replace("`", "")
    checked(index_report([summary_of(run, HOSTILE)]))


def test_the_smallest_set_of_events_is_marked_among_those_of_its_message() -> None:
    page = run_report(run_of("duplicates"))
    assert "the smallest set of events that breaks the rule: 4 of 45, on m1" in page
    assert re.findall(r'<tr id="(b\d+)" class="wit-row">', page) == ["b6", "b16", "b22", "b29"]
    assert "The other 36 events of the broken run" in page
    assert "The 45 events of the protected run" in page


def test_both_variants_have_one_time_scale() -> None:
    axes = re.findall(r'<li class="lane axis-row".*?</li>', run_report(run_of("happy")))
    assert len(axes) == 2
    assert axes[0] == axes[1]


def test_a_long_history_is_cut_with_a_note_but_keeps_its_witnesses() -> None:
    run = run_of("backpressure")
    variant = run.broken
    assert variant is not None
    total = len(variant.history.events)
    assert total > ROWS_MAX
    last = msgspec.structs.replace(variant.checks[0], witness=(1, total))
    variant = msgspec.structs.replace(variant, checks=(last, *variant.checks[1:]))
    page = run_report(msgspec.structs.replace(run, broken=variant))
    read = checked(page)
    assert f"b{total}" in read.ids
    assert f"b{ROWS_MAX}" in read.ids
    assert f"b{ROWS_MAX + 20}" not in read.ids
    assert f"of {total:,} events: the first {ROWS_MAX} and every witness" in page
    assert '<a href="backpressure-7-broken.jsonl">' in page
    assert len(page) < 1_000_000


def test_what_fails_though_protected_is_explained_first() -> None:
    run = run_of("duplicates")
    assert run.broken is not None
    failing = msgspec.structs.replace(run, protected=msgspec.structs.replace(run.broken, name="protected"))
    page = run_report(failing)
    assert "Protected: fails" in page
    assert "Why it failed" in page
    assert re.findall(r'<tr id="(p\d+)" class="wit-row">', page) == ["p6", "p16", "p22", "p29"]


def test_missing_evidence_is_named() -> None:
    run = verdicts(run_of("duplicates"), "unknown")
    page = run_report(run)
    assert "Protected: unknown" in page
    assert f"{run.protected.checks[0].rule}: {run.protected.checks[0].sentence}." in page


def test_a_broken_variant_that_does_not_break_is_told_so() -> None:
    run = run_of("duplicates")
    blind = msgspec.structs.replace(run, broken=msgspec.structs.replace(run.protected, name="broken"))
    page = run_report(blind)
    assert "Broken: does not break, but must" in page
    assert 'class="state lost">fails' in page


def test_what_an_endpoint_cannot_show_is_not_observed() -> None:
    run = run_of("purge-timing")
    assert run.broken is not None
    calm = msgspec.structs.replace(run.protected, name="broken")
    run = msgspec.structs.replace(run, broken=calm, not_observed="A purge takes effect at once here.")
    page = run_report(run)
    assert "not observed here" in page
    assert "A purge takes effect at once here." in page
    assert 'href="#m-unknown"' in page


def test_one_variant_alone_has_a_report_too() -> None:
    run = run_of("crash")
    read = checked(run_report(msgspec.structs.replace(run, broken=None), index=None))
    assert "Protected: holds" in read.text
    assert "Broken" not in read.text


def test_the_policy_allows_exactly_the_style_that_a_report_has() -> None:
    style = run_report(run_of("happy")).split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in content_security_policy()
    assert "default-src 'none'" in content_security_policy()
    assert "unsafe" not in content_security_policy()


def summaries() -> list[RunSummary]:
    fails = verdicts(run_of("noisy-neighbour"), "failed")
    calm = msgspec.structs.replace(run_of("purge-timing"), not_observed="A purge takes effect at once here.")
    unknown = verdicts(run_of("poison"), "unknown")
    return [summary_of(run, f"{run.scenario}.html") for run in (run_of("crash"), run_of("happy"), calm, fails, unknown)]


def test_the_index_shows_what_fails_first() -> None:
    page = index_report(summaries())
    read = checked(page)
    found = re.findall(r'<h2><a href="[\w-]+\.html">([\w-]+)</a></h2><span class="state \w+">([\w ]+)<', page)
    assert found == [
        ("noisy-neighbour", "fails"),
        ("poison", "unknown"),
        ("purge-timing", "not observed here"),
        ("happy", "holds"),
        ("crash", "holds"),
    ]
    assert "A purge takes effect at once here." in read.text
    assert page.count('class="thumb"') == 10


def test_a_summary_can_be_kept_in_a_file() -> None:
    many = summaries()
    kept = msgspec.json.encode(many)
    assert msgspec.json.decode(kept, type=list[RunSummary]) == many
    assert index_report(msgspec.json.decode(kept, type=list[RunSummary])) == index_report(many)


def test_a_kept_shape_that_is_no_shape_is_refused() -> None:
    kept = msgspec.json.encode(summaries()).replace(b'"tag":"line"', b'"tag":"script"')
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(kept, type=list[RunSummary])


def test_an_index_of_nothing_says_how_to_begin() -> None:
    assert "penstock lab run happy" in checked(index_report([])).text


def test_a_run_as_json_has_the_verdicts_and_no_events() -> None:
    run = run_of("duplicates")
    shown = json.loads(msgspec.json.encode(run_json(run)))
    assert (shown["outcome"], shown["seed"], shown["breaks"]) == ("holds", 7, "effects-once")
    broken = shown["variants"]["broken"]
    assert (broken["verdict"], broken["events"]) == ("failed", 45)
    [calls] = [check for check in broken["checks"] if check["name"] == "effects-once"]
    assert calls["verdict"] == "failed"
    assert calls["witness"] == [6, 16, 22, 29]
    assert msgspec.convert(calls, Check) in (run.broken.checks if run.broken else ())


@pytest.mark.parametrize("span_ms", [1, 9, 130, 999, 5_600, 60_000, 600_000, 3_700_000, 90_000_000])
def test_an_axis_has_few_even_ticks_from_zero(span_ms: int) -> None:
    found = ticks(span_ms)
    steps = {after[0] - before[0] for before, after in itertools.pairwise(found)}
    assert found[0][0] == 0
    assert 1 <= len(found) <= TICKS_MAX + 1
    assert len(steps) <= 1
    assert found[-1][0] <= span_ms
