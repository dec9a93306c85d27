"""psql as a process that is kept, since starting one for each statement takes longer than most statements do."""

from __future__ import annotations

import subprocess
import threading

_DONE = "-- done, with an error:"


class SessionLost(Exception):
    """The session ended before the statement did; what the session said is the message."""


class Psql:
    """One session of psql, for one statement at a time, from whatever thread."""

    def __init__(self, program: str, dsn: str) -> None:
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            [program, "-XAtq", "-d", dsn],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, statement: str) -> str:
        """Run a statement and return what psql prints; raise `RuntimeError` with that if the server refuses it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        printed: list[str] = []
        with self._one_at_a_time:
            try:
                self._process.stdin.write(f"{statement};\n\\echo {_DONE} :ERROR\n")
                self._process.stdin.flush()
            except BrokenPipeError as error:
                raise SessionLost("psql has ended") from error
            for line in self._process.stdout:
                if line.startswith(_DONE):
                    if line.split()[-1] == "true":
                        raise RuntimeError(f"{statement}: {''.join(printed).strip()}")
                    return "".join(printed).strip()
                printed.append(line)
        raise SessionLost("".join(printed).strip())

    def close(self) -> None:
        """End the session, whatever it is doing."""
        self._process.kill()
        # Not closed as usual: what could not be written to a process that had ended would be written once more.
        self._process.communicate()
