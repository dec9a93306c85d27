"""What a worker's notices say to people: a state, a word and lines of text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from functools import singledispatchmethod

import msgspec

from penstock.cli.terminal.signs import Signs
from penstock.cli.terminal.text import Span, harmless
from penstock.cli.terminal.tracebacks import failure_line, traceback_lines
from penstock.cli.terminal.values import (
    coarse_duration,
    count,
    counted,
    duration,
    time_of_day,
    whole_duration,
)
from penstock.client.worker import notices
from penstock.client.worker.notices import JobNotice, Notice, Trouble


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One notice in words: a sign and a word, lines of text, and lines below them that stand by themselves."""

    state: str
    word: str
    texts: list[list[Span]]
    below: list[list[Span]] = []


class Wording:
    """Puts notices into words for people."""

    def __init__(self, signs: Signs, now_ms: Callable[[], int], zone: tzinfo | None) -> None:
        self._signs = signs
        self._now_ms = now_ms
        self._zone = zone

    @singledispatchmethod
    def say(self, notice: Notice) -> Said:
        """Say what happened."""
        raise AssertionError(f"nobody has put {type(notice).__name__} into words")

    def who(self, notice: JobNotice) -> str:
        """Name the queue, the task and the job."""
        signs = self._signs
        return f"{signs.name(notice.queue)} {signs.name(notice.task)} {signs.job(notice.job)}"

    def same(self, notice: JobNotice, state: str, word: str) -> Said:
        """Say that a job met a cause that was written out before."""
        first = self.say(notice).texts[0]
        return Said(state=state, word=word, texts=[first, [Span("the same", "dim")]])

    def summary(self, notice: JobNotice, jobs: str, first_ms: int) -> Said:
        """Say how many jobs met a cause within a minute."""
        said = self.say(notice)
        who = f"{self._signs.name(notice.queue)} {self._signs.name(notice.task)}"
        noun = "job" if jobs == "1" else "jobs"
        text = [
            Span(f"{who}  {jobs} {noun} in a minute"),
            Span(f"  the same as {time_of_day(first_ms, self._zone)}", "dim"),
        ]
        return Said(state=said.state, word=said.word, texts=[text])

    @say.register
    def _ready(self, notice: notices.Ready) -> Said:
        text = f"{counted(notice.slots, 'slot')}, {counted(notice.tasks, 'task')}"
        return _said("done", "ready", text)

    @say.register
    def _done(self, notice: notices.Done) -> Said:
        return _said("done", "done", f"{self.who(notice)}  after {duration(notice.took_s)}")

    @say.register
    def _retrying(self, notice: notices.Retrying) -> Said:
        first = f"{self.who(notice)}  {_attempt(notice)}, in {duration(notice.in_s)}"
        return Said(state="retrying", word="retrying", texts=[[Span(first)], *_trouble(notice.trouble)])

    @say.register
    def _died(self, notice: notices.Died) -> Said:
        first = [Span(f"{self.who(notice)}  {_attempt(notice)}{', permanent' if notice.permanent else ''}")]
        details = notice.trouble.details
        if not details.strip():
            return Said(state="dead", word="dead", texts=[first, *_trouble(notice.trouble)])
        return Said(state="dead", word="dead", texts=[first], below=traceback_lines(details, self._signs.ellipsis))

    @say.register
    def _snoozed(self, notice: notices.Snoozed) -> Said:
        return _said("delayed", "snoozed", f"{self.who(notice)}  again in {duration(notice.in_s)}")

    @say.register
    def _cancelled(self, notice: notices.Cancelled) -> Said:
        reason = [harmless(notice.reason)] if notice.reason else []
        return _said("cancelled", "cancelled", f"{self.who(notice)}  after {duration(notice.took_s)}", *reason)

    @say.register
    def _released(self, notice: notices.Released) -> Said:
        step = f", step {harmless(notice.progress)}" if notice.progress else ""
        return _said(
            "retrying",
            "released",
            f"{self.who(notice)}  after {duration(notice.took_s)}{step}",
            f"Another worker can take it now, as attempt {notice.attempt + 1}.",
        )

    @say.register
    def _lease_over(self, notice: notices.LeaseOver) -> Said:
        first = f"{self.who(notice)}  lease over, stopped"
        rest = "Nothing is reported; the server will offer it again."
        if notice.reason in ("", "lease over", "the lease is over"):
            return _said("lost", "lost", first, rest)
        return _said("lost", "lost", first, harmless(notice.reason), rest)

    @say.register
    def _connection_lost(self, notice: notices.ConnectionLost) -> Said:
        first = f"connection to {harmless(notice.address)}: {harmless(notice.reason)}"
        if not notice.running:
            return _said("lost", "lost", first, "No job is running.")
        one = notice.running == 1
        keeps = f"{counted(notice.running, 'job')} {'keeps' if one else 'keep'} running"
        if notice.lease_left_s is None:
            return _said("lost", "lost", first, f"{keeps}.")
        ends = time_of_day(self._now_ms() + notice.lease_left_s * 1_000, self._zone)
        return _said("lost", "lost", first, f"{keeps}; {'its' if one else 'the first'} lease ends at {ends}.")

    @say.register
    def _connection_back(self, notice: notices.ConnectionBack) -> Said:
        after = f"after {whole_duration(notice.after_s) if notice.after_s >= 1 else duration(notice.after_s)}"
        if not notice.running:
            return _said("done", "back", after)
        if notice.running == 1:
            kept = "the job kept its lease" if notice.kept else "the job lost its lease"
        elif notice.kept == notice.running:
            kept = f"all {count(notice.running)} jobs kept their lease"
        else:
            kept = f"{count(notice.kept)} of {count(notice.running)} jobs kept their lease"
        return _said("done", "back", f"{after}; {kept}")

    @say.register
    def _stalled(self, notice: notices.Stalled) -> Said:
        said = _said(
            "behind",
            "stalled",
            f"A task blocks the event loop, for {duration(notice.for_s)} so far.",
            "Its job keeps its lease; other jobs of this worker wait.",
        )
        if not notice.stack.strip():
            return said
        return msgspec.structs.replace(said, below=traceback_lines(notice.stack, self._signs.ellipsis))

    @say.register
    def _stuck(self, notice: notices.Stuck) -> Said:
        return _said(
            "lost",
            "stuck",
            f"{self.who(notice)}  after {duration(notice.took_s)}",
            "Its attempt is over, but its thread goes on. This worker must be replaced.",
        )

    @say.register
    def _stopping(self, notice: notices.Stopping) -> Said:
        typed = notice.reason == "SIGINT"
        jobs = counted(notice.running, "job") if notice.running else "no job"
        offers = f", {counted(notice.returned, 'offer')} returned" if notice.returned else ""
        reason = "" if typed or not notice.reason else f"{harmless(notice.reason)}: "
        quit_now = f" Ctrl+C {'again ' if typed else ''}to quit now" if notice.running else ""
        return _said("paused", "stopping", f"{reason}{jobs} running{offers}{'.' if quit_now else ''}{quit_now}")

    @say.register
    def _stopped(self, notice: notices.Stopped) -> Said:
        released = f", {count(notice.released)} released" if notice.released else ""
        numbers = f"{count(notice.done)} done, {count(notice.retrying)} retrying, {count(notice.dead)} dead{released}"
        return _said("done", "stopped", f"{numbers} in {coarse_duration(notice.ran_s)}")

    @say.register
    def _restarting(self, notice: notices.Restarting) -> Said:
        return _said("retrying", "restart", harmless(notice.reason))

    @say.register
    def _warned(self, notice: notices.Warned) -> Said:
        return _said("behind", "warning", harmless(notice.message))


def _attempt(notice: notices.Retrying | notices.Died) -> str:
    """Say which attempt it was, and of how many, unless only the queue knows that."""
    of = f" of {notice.attempts_max}" if notice.attempts_max else ""
    return f"attempt {notice.attempt}{of}"


def _said(state: str, word: str, *texts: str) -> Said:
    return Said(state=state, word=word, texts=[[Span(text)] for text in texts])


def _trouble(trouble: Trouble) -> list[list[Span]]:
    texts: list[list[Span]] = [failure_line(trouble.kind, trouble.message)]
    if trouble.at:
        texts.append([Span(f"at {harmless(trouble.at)}", "dim")])
    return texts
