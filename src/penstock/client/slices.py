"""Many jobs cut into requests that the server takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from penstock.client.reading import encode, new_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.client.requests import NewJob

JOBS_MAX = 500
BYTES_MAX = 6 * 1024 * 1024
"""Of the jobs of one request; the server takes 8 MiB."""


def written(job: NewJob) -> bytes:
    """Write a job with an id, which is made unless it has one."""
    return encode(msgspec.structs.replace(job, id=new_id()) if job.id is UNSET else job)


def slices(jobs: Iterable[NewJob]) -> Iterator[list[bytes]]:
    """Write jobs and yield them by the request. One that is too large by itself is left to the server to refuse."""
    entries: list[bytes] = []
    size = 0
    for job in jobs:
        entry = written(job)
        if entries and (len(entries) >= JOBS_MAX or size + len(entry) > BYTES_MAX):
            yield entries
            entries, size = [], 0
        entries.append(entry)
        size += len(entry) + 1
    if entries:
        yield entries
