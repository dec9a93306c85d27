"""Versions in payloads: the state of each entity, which only a higher version may replace."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.lab.consumer_settings import Versioning


class Versions:
    """The state of all entities in a file that several consumers share."""

    def __init__(self, settings: Versioning, *, last_write_wins: bool) -> None:
        self._settings = settings
        self._last_write_wins = last_write_wins

    def read(self, payload: dict[str, Any]) -> tuple[str, int] | None:
        """Return the entity and the version of a payload, if it has both."""
        entity, version = payload.get(self._settings.entity_key), payload.get(self._settings.version_key)
        if entity is None or not isinstance(version, int) or isinstance(version, bool):
            return None
        return str(entity), version

    def apply(self, entity: str, version: int) -> bool:
        """Write a version, unless the state has that or a higher one; return whether it was written."""
        settings = self._settings
        _append(settings.seen_log_path, entity, version)
        state = Path(settings.state_path)
        file = os.open(state, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            written = state.read_text(encoding="utf-8")
            versions: dict[str, int] = json.loads(written) if written else {}
            if version <= versions.get(entity, -1) and not self._last_write_wins:
                return False
            versions[entity] = version
            text = json.dumps(versions, sort_keys=True).encode()
            os.ftruncate(file, 0)
            os.pwrite(file, text, 0)
        finally:
            os.close(file)
        _append(settings.log_path, entity, version)
        return True


def _append(path: str, entity: str, version: int) -> None:
    if path:
        append_line(path, json.dumps({"entity": entity, "version": version}))


def append_line(path: str, line: str) -> None:
    """Add a line to a file that others write to as well."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
