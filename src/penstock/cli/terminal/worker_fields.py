"""What a worker's notices say to programs: a word, a level and fields."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.client.worker import notices
from penstock.client.worker.notices import Notice, Trouble


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One notice for programs."""

    word: str
    level: str = "info"
    fields: Mapping[str, object] = {}


_WORDS: dict[type[Notice], tuple[str, str]] = {
    notices.Ready: ("ready", "info"),
    notices.Done: ("done", "info"),
    notices.Retrying: ("retrying", "warning"),
    notices.Died: ("dead", "error"),
    notices.Snoozed: ("snoozed", "info"),
    notices.Cancelled: ("cancelled", "info"),
    notices.Released: ("released", "warning"),
    notices.LeaseOver: ("lost", "error"),
    notices.ConnectionLost: ("lost", "error"),
    notices.ConnectionBack: ("back", "info"),
    notices.Stalled: ("stalled", "warning"),
    notices.Stuck: ("stuck", "error"),
    notices.Stopping: ("stopping", "info"),
    notices.Stopped: ("stopped", "info"),
    notices.Restarting: ("restart", "info"),
    notices.Warned: ("warning", "warning"),
}
_NAMES = {"attempts_max": "of"}
_FIRST = ("queue", "task", "job")


def tell(notice: Notice, worker: str) -> Told:
    """Put a notice into fields: ids and numbers are whole, and of a traceback only your last frame is kept."""
    word, level = _WORDS[type(notice)]
    given = {name: getattr(notice, name) for name in notice.__struct_fields__}
    fields: dict[str, object] = {name: given.pop(name) for name in _FIRST if name in given}
    fields["worker"] = worker
    trouble = given.pop("trouble", None)
    stack = given.pop("stack", "")
    for name, value in given.items():
        if value is None or value == "" or (name == "attempts_max" and not value):
            continue
        if isinstance(value, bool):
            if value:
                fields[name] = "true"
        else:
            fields[_NAMES.get(name, name)] = round(value, 3) if isinstance(value, float) else value
    if isinstance(trouble, Trouble):
        fields |= {"kind": trouble.kind, "message": trouble.message}
        if trouble.at:
            fields["at"] = trouble.at.partition(" in ")[0]
    if stack:
        fields["stack"] = stack
    return Told(word=word, level=level, fields=fields)
