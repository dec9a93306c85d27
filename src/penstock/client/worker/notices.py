"""What a worker has to say: one notice for each thing that a person would act on, and numbers at any time."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. Durations are in seconds."""


class JobNotice(Notice, frozen=True, kw_only=True):
    """One thing that happened to a job."""

    queue: str
    task: str
    job: str
    attempt: int


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed."""

    kind: str
    """The name of the exception's class."""
    message: str
    details: str = ""
    """The traceback as Python writes it; empty if there is none."""
    at: str = ""
    """The innermost frame of the user's own code, as `shop/mail.py:33 in deliver`."""


class Ready(Notice, frozen=True, kw_only=True):
    """The worker takes jobs."""

    slots: int
    tasks: int


class Done(JobNotice, frozen=True, kw_only=True):
    """An attempt succeeded."""

    took_s: float


class Retrying(JobNotice, frozen=True, kw_only=True):
    """An attempt failed, and another will follow."""

    attempts_max: int
    in_s: float
    trouble: Trouble


class Died(JobNotice, frozen=True, kw_only=True):
    """An attempt failed, and no other will follow."""

    attempts_max: int
    permanent: bool
    trouble: Trouble


class Snoozed(JobNotice, frozen=True, kw_only=True):
    """The task put its job off."""

    in_s: float


class Cancelled(JobNotice, frozen=True, kw_only=True):
    """The job was cancelled while it ran, or its task discarded it."""

    took_s: float
    reason: str = ""


class Released(JobNotice, frozen=True, kw_only=True):
    """The worker stops, and gave a running job back: another can take it now."""

    took_s: float
    progress: str = ""
    """How far it was, as `3 of 5`, if the task said so."""


class LeaseOver(JobNotice, frozen=True, kw_only=True):
    """The lease ended before the attempt did: the task was stopped, and nothing is reported."""

    took_s: float
    reason: str


class ConnectionLost(Notice, frozen=True, kw_only=True):
    """The server is silent or away. Jobs go on until their leases end."""

    address: str
    reason: str
    running: int
    lease_left_s: float | None
    """Until the first lease ends; None if nothing runs."""


class ConnectionBack(Notice, frozen=True, kw_only=True):
    """The server answers again."""

    after_s: float
    running: int
    """How many jobs ran when the connection was lost."""
    kept: int
    """How many of them kept their leases."""


class Stalled(Notice, frozen=True, kw_only=True):
    """A task blocks the event loop; its job is kept by heartbeats of another thread."""

    for_s: float
    stack: str
    """Where the loop is stuck, as Python writes a traceback."""


class Stuck(JobNotice, frozen=True, kw_only=True):
    """A task goes on in its thread although its attempt is over: the process has to be replaced."""

    took_s: float


class Stopping(Notice, frozen=True, kw_only=True):
    """The worker takes no more jobs."""

    reason: str
    """`SIGTERM`, `5,000 jobs done`, `a thread is stuck` and the like."""
    running: int
    returned: int
    """How many offers were given back."""
    grace_s: float


class Stopped(Notice, frozen=True, kw_only=True):
    """The worker has ended."""

    done: int
    retrying: int
    dead: int
    released: int
    ran_s: float


class Restarting(Notice, frozen=True, kw_only=True):
    """Another process takes the place of this worker's."""

    reason: str


class Warned(Notice, frozen=True, kw_only=True):
    """Something that goes on, and that somebody should look at."""

    message: str


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs now."""

    queue: str
    task: str
    job: str
    for_s: float


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a worker now."""

    slots: int
    running: int
    done: int
    retrying: int
    dead: int
    last_job_s: float | None
    """How long ago the last job ended."""
    disconnected_s: float | None = None
    next_try_s: float | None = None
    stopping_s: float | None = None
    """What is left of the grace; None unless it stops."""
    oldest: Running | None = None


class Observer(Protocol):
    """Takes in what a worker has to say. It must not block.

    It is called on the worker's event loop; with `Stalled`, which says that the loop does not run, from another thread.
    """

    @property
    def verbose(self) -> bool:
        """Whether it wants a notice of each job that succeeds."""

    def notice(self, notice: Notice) -> None:
        """Take in what happened."""
