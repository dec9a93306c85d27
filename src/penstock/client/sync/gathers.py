# Made of penstock/client/verbs by scripts/make_sync.py. Change that, and run the script.
"""Gathers: many jobs, and one that runs after them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.client.calls import WAIT_S, Call, waiting
from penstock.client.reading import encode, new_id, query, reader, segment
from penstock.client.slices import slices, written
from penstock.wire.jobs.gathers import GatherAnswer, GatherView, MemberResults

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.client.requests import NewJob, OnError
    from penstock.client.sync.caller import Caller

_read_answer = reader(GatherAnswer)
_read_gather = reader(GatherView)
_read_results = reader(MemberResults)


class Gathers:
    """Gathers, by id."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def create(
        self,
        then: NewJob,
        jobs: Iterable[NewJob] = (),
        *,
        id: str | None = None,  # noqa: A002 - the API's own name
        on_error: OnError = "fail",
        seal: bool = True,
        expires_in_ms: int | None = None,
        timeout: float | None = None,
    ) -> GatherAnswer:
        """Enqueue jobs, and have `then` enqueued when they have ended. More than fit one request go in several.

        With `seal=False` more can be added. A gather is sealed only if all its jobs were stored. A `Continuation` has
        what runs after it in its own `then`. The ids of all that is to run are in the answer's `links`.
        """
        gather_id = id or new_id()
        entries = list(slices(jobs))
        first = entries[0] if entries else []
        head = {"id": gather_id, "on_error": on_error, "expires_in_ms": expires_in_ms}
        fields = b",".join(
            [
                *(b'"%b":%b' % (name.encode(), encode(value)) for name, value in head.items() if value is not None),
                b'"then":%b' % written(then),
                b'"jobs":[%b]' % b",".join(first),
                b'"seal":%b' % encode(seal and len(entries) <= 1),
            ]
        )
        call = Call("POST", "/v1/gathers", _read_answer, b"{%b}" % fields)
        answer = self._caller.perform(call, timeout)
        return self._add_slices(gather_id, answer, len(first), entries[1:], seal=seal, timeout=timeout)

    def add(
        self, gather_id: str, first: int, jobs: Iterable[NewJob], *, seal: bool = False, timeout: float | None = None
    ) -> GatherAnswer:
        """Add jobs, the first of them with the index `first`, and seal the gather if asked to."""
        entries = list(slices(jobs)) or [[]]
        answer = self._add(gather_id, first, entries[0], seal=seal and len(entries) == 1, timeout=timeout)
        return self._add_slices(gather_id, answer, first + len(entries[0]), entries[1:], seal=seal, timeout=timeout)

    def get(self, gather_id: str, *, wait: float = 0.0, timeout: float | None = None) -> GatherView:
        """Return a gather and how far it is, after waiting for it to end for up to `wait` seconds.

        It has ended when its continuation is enqueued, or never will be. Raises `GatherNotFound`.
        """
        path = f"/v1/gathers/{segment(gather_id)}"
        until = time.monotonic() + wait
        while True:
            wait_s = min(max(until - time.monotonic(), 0.0), WAIT_S)
            call = Call("GET", waiting(path, wait_s).target, _read_gather)
            found = self._caller.perform(
                call.waiting(wait_s, lambda left_s: waiting(path, left_s)) if wait_s else call, timeout
            )
            if found.ended_at_ms is not None or time.monotonic() >= until:
                return found

    def results(
        self, gather_id: str, *, after: int | None = None, limit: int | None = None, timeout: float | None = None
    ) -> MemberResults:
        """Return a page of what the jobs came to, in the order of their indexes."""
        asked = query({"after": after, "limit": limit})
        call = Call("GET", f"/v1/gathers/{segment(gather_id)}/results{asked}", _read_results)
        return self._caller.perform(call, timeout)

    def cancel(self, gather_id: str, *, timeout: float | None = None) -> GatherView:
        """Say that the continuation is not to run. The jobs go on."""
        path = f"/v1/gathers/{segment(gather_id)}/cancel"
        return self._caller.perform(Call("POST", path, _read_gather), timeout)

    def _add_slices(
        self,
        gather_id: str,
        answer: GatherAnswer,
        first: int,
        entries: list[list[bytes]],
        *,
        seal: bool,
        timeout: float | None,
    ) -> GatherAnswer:
        """Add what did not fit the first request, and return all answers as one."""
        results, links = list(answer.results), answer.links
        for place, part in enumerate(entries):
            last = place == len(entries) - 1
            answer = self._add(gather_id, first, part, seal=seal and last, timeout=timeout)
            results += answer.results
            first += len(part)
        return GatherAnswer(gather=answer.gather, results=results, links=links)

    def _add(
        self, gather_id: str, first: int, entries: list[bytes], *, seal: bool, timeout: float | None
    ) -> GatherAnswer:
        given = b'{"first":%d,"jobs":[%b],"seal":%b}' % (first, b",".join(entries), encode(seal))
        call = Call("POST", f"/v1/gathers/{segment(gather_id)}/jobs", _read_answer, given)
        return self._caller.perform(call, timeout)
