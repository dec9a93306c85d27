"""Replacing: waiting jobs make way for new ones that have their unique keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.job import TERMINAL, WAITING, OnDuplicate
from penstock.store.jobs.changes import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.domain.job import JobDraft, JobState
    from penstock.store.jobs.changes import Changes
    from penstock.store.jobs.rows import JobRecord
    from penstock.store.jobs.script import Script, Tx
    from penstock.store.jobs.surroundings import Surroundings


class Replaceable:
    """Jobs that may be replaced, whose rows are locked: by their ids, as they are now."""

    def __init__(self, changes: Changes | None = None, jobs: dict[str, JobRecord] | None = None) -> None:
        self._changes = changes
        self._jobs = jobs or {}

    def state(self, job_id: str) -> JobState | None:
        """Where a job is; None if it is not one of these."""
        job = self._jobs.get(job_id)
        return None if job is None else job.state

    def waits(self, job_id: str) -> bool:
        """Whether a job is one of these and may be replaced."""
        return self.state(job_id) in WAITING

    def cancel(self, replaced: Iterable[tuple[str, str]]) -> Script[None]:
        """Cancel jobs: the arguments are the new ids and those of the jobs that they replace."""
        if self._changes is None:
            return
        for new_id, job_id in replaced:
            self._changes.cancel(self._jobs[job_id], data={"replaced_by": new_id})
        yield from self._changes.save()


def lock_replaceable(tx: Tx, around: Surroundings, job_ids: Sequence[str]) -> Script[Replaceable]:
    """Lock jobs that new ones may replace. Those that have expired by now are cancelled."""
    if not job_ids:
        return Replaceable()
    changes, jobs = yield from load(tx, around, job_ids)
    expired = [job for job in jobs.values() if job.state not in TERMINAL and job.has_expired(tx.now_ms)]
    if expired:
        for job in expired:
            changes.expire(job)
        yield from changes.save()
        changes, jobs = yield from load(tx, around, job_ids)
    return Replaceable(changes, jobs)


def stretches(drafts: Sequence[JobDraft]) -> list[list[JobDraft]]:
    """Divide drafts so that none replaces another of its own stretch."""
    found: list[list[JobDraft]] = [[]]
    keys: set[tuple[str, str]] = set()
    for draft in drafts:
        if draft.unique_key is not None:
            key = (draft.tenant, draft.unique_key)
            if draft.on_duplicate is OnDuplicate.REPLACE and key in keys:
                found.append([])
                keys = set()
            keys.add(key)
        found[-1].append(draft)
    return found
