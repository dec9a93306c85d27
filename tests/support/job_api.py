"""A plain client of the job API, for tests in which servers come and go: it finds whichever of them answers."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ANSWER_TIMEOUT_S = 20.0
_PAUSE_S = 0.02


class Unreachable(Exception):
    """No answer came; whether anything was done is not known."""


class Answer:
    """A whole answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)


class JobApi:
    """One kept-alive connection to one of the servers whose addresses stand in a file; a broken one is opened anew."""

    def __init__(self, addresses: Path, chance: random.Random) -> None:
        self._addresses = addresses
        self._chance = chance
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, value: object = None, **headers: str) -> Answer:
        """Send one request; raise `Unreachable` if there is no answer, or one that asks to come again."""
        try:
            connection = self._connect()
            body = None if value is None else json.dumps(value).encode()
            named = {name.replace("_", "-"): text for name, text in headers.items()}
            connection.request(method, path, body, {"Content-Type": "application/json"} | named)
            answered = connection.getresponse()
            answer = Answer(answered.status, dict(answered.getheaders()), answered.read())
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(str(error)) from error
        if answer.status == 503:
            self.close()
            raise Unreachable("503")
        return answer

    def insist(self, method: str, path: str, value: object = None, *, seconds: float, **headers: str) -> Answer:
        """Send a request again and again until there is an answer; raise `Unreachable` after so many seconds."""
        ends_s = time.monotonic() + seconds
        while True:
            try:
                return self.ask(method, path, value, **headers)
            except Unreachable:
                if time.monotonic() > ends_s:
                    raise
                threading.Event().wait(_PAUSE_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            addresses = self._addresses.read_text().split()
            if not addresses:
                raise ConnectionError("no server runs at the moment")
            address = urlsplit(self._chance.choice(addresses))
            assert address.hostname is not None
            self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=ANSWER_TIMEOUT_S)
        return self._connection


def publish_addresses(file: Path, addresses: list[str]) -> None:
    """Put addresses into the file, all at once."""
    new = file.with_suffix(".new")
    new.write_text("\n".join(addresses))
    new.replace(file)
