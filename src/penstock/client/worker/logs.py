"""Notices of a worker as records of stdlib logging, for programs that run a worker themselves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from penstock.client.worker import notices
from penstock.domain.log_fields import log_fields

if TYPE_CHECKING:
    from penstock.client.worker.notices import Notice, Observer

_LEVELS: dict[type[Notice], int] = {
    notices.Done: logging.DEBUG,
    notices.Snoozed: logging.INFO,
    notices.Retrying: logging.WARNING,
    notices.Died: logging.ERROR,
    notices.LeaseOver: logging.ERROR,
    notices.ConnectionLost: logging.ERROR,
    notices.Stalled: logging.ERROR,
    notices.Stuck: logging.ERROR,
    notices.Warned: logging.WARNING,
}


class LoggingObserver:
    """Logs each notice with its fields as `extra`, under the names of the notice, and as text."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("penstock.worker")

    @property
    def verbose(self) -> bool:
        """Whether jobs that succeed are worth a notice."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def notice(self, notice: Notice) -> None:
        """Log it."""
        level = _LEVELS.get(type(notice), logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        fields = flat(notice)
        text = log_fields({name: value for name, value in fields.items() if name not in {"details", "stack"}})
        self._logger.log(
            level, "%s %s", word(notice), text, extra={f"penstock_{name}": fields[name] for name in fields}
        )


class CarefulObserver:
    """Passes notices on to an observer, and logs what it raises: a worker must not stop by it."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    @property
    def verbose(self) -> bool:
        """Whether it wants a notice of each job that succeeds."""
        return self._observer.verbose

    def notice(self, notice: Notice) -> None:
        """Pass it on."""
        try:
            self._observer.notice(notice)
        except Exception:  # The user's own code.
            logging.getLogger("penstock.worker").exception("the observer failed to take in %s", word(notice))


def word(notice: Notice) -> str:
    """Return what a notice is called in a log."""
    return _WORDS.get(type(notice), type(notice).__name__.lower())


_WORDS: dict[type[Notice], str] = {
    notices.Died: "dead",
    notices.LeaseOver: "lost",
    notices.ConnectionLost: "lost",
    notices.ConnectionBack: "back",
    notices.Restarting: "restart",
    notices.Warned: "warning",
}


def flat(notice: Notice) -> dict[str, object]:
    """Return the fields of a notice by name, those of its trouble among them."""
    fields: dict[str, object] = {}
    for name in notice.__struct_fields__:
        value = getattr(notice, name)
        if isinstance(value, notices.Trouble):
            fields.update(msgspec.structs.asdict(value))
        else:
            fields[name] = value
    return fields
