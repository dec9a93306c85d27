"""The live line of a worker."""

from __future__ import annotations

from penstock.cli.terminal.signs import Signs
from penstock.cli.terminal.text import Span
from penstock.cli.terminal.values import count, duration, whole_duration
from penstock.client.worker.notices import Status

BAR_CELLS = 25
_GAP = Span("  ")
_LEAST_AGO_S = 0.1


def status_line(status: Status, signs: Signs, grace_s: float | None = None) -> list[Span] | None:
    """Say how a worker does in one line; None once it has stopped and nothing runs."""
    if status.stopping_s is not None:
        return _stopping(status, signs, status.stopping_s, grace_s)
    if status.disconnected_s is not None:
        return _disconnected(status, signs, status.disconnected_s)
    running = _numbers(signs, "running", status.running, f" of {count(status.slots)} running")
    return [
        *running,
        *_numbers(signs, "done", status.done, " done"),
        *_numbers(signs, "retrying", status.retrying, " retrying"),
        *_numbers(signs, "dead", status.dead, " dead"),
        Span(
            "no job yet" if status.last_job_s is None else f"last job {_ago(status.last_job_s)} ago",
            "dim",
        ),
    ]


def _numbers(signs: Signs, state: str, number: int, words: str) -> list[Span]:
    """Write a sign and its number; zero is dim, and so is its sign."""
    sign = signs.of(state)
    if number:
        return [sign, Span(f" {count(number)}{words}"), _GAP]
    return [Span(f"{sign.text} 0{words}", "dim"), _GAP]


def _ago(seconds: float) -> str:
    return duration(max(round(seconds, 1), _LEAST_AGO_S)) if seconds < 10 else whole_duration(seconds)


def _disconnected(status: Status, signs: Signs, silent_s: float) -> list[Span]:
    tries = "trying now"
    if status.next_try_s is not None and status.next_try_s > 0:
        tries = f"next try in {whole_duration(max(status.next_try_s, 1))}"
    return [signs.of("lost"), Span(f" no connection for {whole_duration(silent_s)}, {tries}")]


def _stopping(status: Status, signs: Signs, left_s: float, grace_s: float | None) -> list[Span] | None:
    if not status.running:
        return None
    line = [signs.of("paused"), Span(f" {whole_duration(left_s)} left"), _GAP]
    if grace_s:
        gone = min(max(round(BAR_CELLS * (1 - left_s / grace_s)), 0), BAR_CELLS)
        line += [Span(signs.bar_done * gone), Span(signs.bar_left * (BAR_CELLS - gone), "dim"), _GAP]
    line += [signs.of("running"), Span(f" {count(status.running)} running")]
    if status.oldest is not None:
        oldest = status.oldest
        name = f"{signs.name(oldest.queue)} {signs.name(oldest.task)}"
        line += [_GAP, Span(f"{name}, {whole_duration(oldest.for_s)}")]
    return line
