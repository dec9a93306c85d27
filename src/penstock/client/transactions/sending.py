"""Sends the rows of a claim to the server, and finds out what became of each."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import msgspec

from penstock.client import errors
from penstock.client.calls import Call
from penstock.client.reading import encode, reader
from penstock.client.transactions.claims import LEASE_MS, Outcome, Row
from penstock.client.transactions.outbox import REQUEST_BYTES_MAX
from penstock.domain.job_queue import JobQueueSettings
from penstock.domain.limits import MINUTE_MS, REPEAT_WINDOW_MS
from penstock.wire.jobs.answers import BatchAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.client.app import Penstock

TIMEOUT_S = 20.0
"""Of one request: less than a claim lasts."""
BACKOFF_MS = 250
BACKOFF_MS_MAX = 30_000
FAILURES_MAX = 10
"""After this many sends at which the server failed by a fault of its own, a row is set aside."""
MARGIN_MS = MINUTE_MS
"""How much earlier than the server a relay takes a job for forgotten: clocks differ, and upkeep has its turns."""
_PLACE = re.compile(r"\bjobs\[\d+\]\.?")
"""Which job of a request is meant, which says nothing to who reads the row."""
_OVER = "The relay took longer than its claim on the row lasts."
_read_batch = reader(BatchAnswer)
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ServerLost(Exception):
    """The server could not be asked at all. Its rows are put off."""

    def __init__(self, error: errors.ClientError) -> None:
        super().__init__(str(error))
        self.error = error


class Sender:
    """Sends rows to a server. `wall_ms` says what time it is, as it does where rows are claimed."""

    def __init__(self, app: Penstock, wall_ms: Callable[[], int]) -> None:
        self._app = app
        self._wall_ms = wall_ms
        self._timeout_s = TIMEOUT_S
        self._until_ms = 0
        """When the present claim is over."""

    async def greet(self) -> None:
        """Raise what keeps the server from taking jobs of this relay: it cannot be reached, or the token is wrong."""
        try:
            await self._post([])
        except (errors.Invalid, errors.Malformed):
            return  # It wants one job at least, and has let us in.

    async def send(self, rows: Sequence[Row], claimed_at_ms: int) -> Outcome:
        """Send rows in their order, and return what became of each; raises `ServerLost` if nothing is known of any.

        Nothing is sent once the claim is over: another relay may have sent these rows long ago.
        """
        self._until_ms = claimed_at_ms + LEASE_MS
        outcome = Outcome()
        entries: list[tuple[Row, bytes]] = []
        for row in rows:
            try:
                entries.append((row, _entry(row)))
            except ValueError as error:
                outcome.refused.append((row, f"malformed: {error}"))
        known = await self._known(entries, outcome)
        if known:
            await self._send(known, outcome)
        return outcome

    async def _known(self, entries: list[tuple[Row, bytes]], outcome: Outcome) -> list[tuple[Row, bytes]]:
        """Return the rows that can be sent without making a second job of any."""
        safe: list[tuple[Row, bytes]] = []
        settings: dict[str, JobQueueSettings] = {}
        for row, entry in entries:
            age_ms = 0 if row.first_sent_at_ms is None else self._wall_ms() - row.first_sent_at_ms
            if age_ms < REPEAT_WINDOW_MS - MARGIN_MS:
                safe.append((row, entry))
                continue
            if self._is_over():
                outcome.delayed.append((row, _OVER, 0, False))
                continue
            try:
                if row.queue not in settings:
                    settings[row.queue] = await self._settings(row.queue)
                if _remembered(entry, settings[row.queue], age_ms):
                    safe.append((row, entry))
                elif await self._is_there(row):
                    outcome.done.append(row)
                else:
                    outcome.refused.append((row, _in_doubt(age_ms)))
            except errors.AccessDenied as error:
                reason = (
                    f"The token cannot look whether the job was enqueued before, which takes the scope read: {error}"
                )
                outcome.delayed.append((row, reason, BACKOFF_MS_MAX, False))
            except errors.ClientError as error:
                raise ServerLost(error) from error
        return safe

    async def _settings(self, queue: str) -> JobQueueSettings:
        try:
            return (await self._app.queues.get(queue)).settings
        except errors.QueueNotFound:
            return JobQueueSettings()  # It would have been made with these.

    async def _is_there(self, row: Row) -> bool:
        try:
            await self._app.jobs.get(row.id)
        except errors.JobNotFound:
            return False
        return True

    def _is_over(self) -> bool:
        return self._wall_ms() >= self._until_ms

    async def _send(self, entries: list[tuple[Row, bytes]], outcome: Outcome) -> None:
        if self._is_over():
            outcome.delayed += [(row, _OVER, 0, False) for row, _ in entries]
            return
        try:
            answer = await self._post([entry for _, entry in entries])
        except (errors.AccessDenied, errors.Malformed, errors.Invalid, errors.TooLarge) as error:
            await self._send_apart(entries, error, outcome)
        except errors.ClientError as error:
            if not (outcome.done or outcome.refused or outcome.delayed):
                raise ServerLost(error) from error
            for row, _ in entries:
                outcome.delayed.append((row, str(error), backoff_ms(row.sends), False))
        else:
            for (row, _), result in zip(entries, answer.results, strict=True):
                if result.problem is None:
                    outcome.done.append(row)
                else:
                    _refused(row, errors.error_of(result.problem), outcome)

    async def _send_apart(self, entries: list[tuple[Row, bytes]], error: errors.ProblemError, outcome: Outcome) -> None:
        """Find what spoils a whole request, so that it holds up no other row."""
        parts: list[list[tuple[Row, bytes]]]
        if isinstance(error, errors.AccessDenied):
            queues = dict.fromkeys(row.queue for row, _ in entries)
            parts = [[each for each in entries if each[0].queue == queue] for queue in queues]
        else:
            middle = len(entries) // 2
            parts = [part for part in (entries[:middle], entries[middle:]) if part]
        if len(parts) > 1:
            for part in parts:
                await self._send(part, outcome)
        elif isinstance(error, errors.AccessDenied):
            for row, _ in entries:
                outcome.delayed.append((row, _reason(error), BACKOFF_MS_MAX, True))
        else:
            outcome.refused.append((entries[0][0], _reason(error)))

    async def _post(self, entries: Sequence[bytes]) -> BatchAnswer:
        call = Call("POST", "/v1/jobs/batch", _read_batch, b'{"jobs":[%b]}' % b",".join(entries))
        return await self._app.jobs._caller.perform(call, self._timeout_s)  # noqa: SLF001 - rows are requests already


def _remembered(entry: bytes, settings: JobQueueSettings, age_ms: int) -> bool:
    """Return whether the server would know the job, if it had taken it this long ago."""
    own = _decode(entry).get("retention_ms")
    kept_ms = settings.retention_ms if own is None else msgspec.json.decode(own, type=int)
    return age_ms < max(min(kept_ms, settings.dead_retention_ms), REPEAT_WINDOW_MS) - MARGIN_MS


def backoff_ms(sends: int) -> int:
    """Return for how long a row waits after this many sends before it."""
    longest: int = min(BACKOFF_MS * 2 ** min(sends, 10), BACKOFF_MS_MAX)
    return round(longest * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


def _entry(row: Row) -> bytes:
    """Return the job of a row as the server takes it; raises `ValueError`."""
    if row.request is None:
        raise ValueError(f"the request is longer than {REQUEST_BYTES_MAX:,} characters.")
    request = row.request if isinstance(row.request, bytes) else row.request.encode()
    fields = _decode(request)
    given: dict[str, object] = {name: msgspec.json.decode(fields[name]) for name in ("id", "queue") if name in fields}
    for name, expected in (("id", row.id), ("queue", row.queue)):
        if given.get(name, expected if name == "id" else None) != expected:
            raise ValueError(f"the row has the {name} {expected!r}, and its request {given.get(name)!r}.")
    return request if "id" in given else encode({**fields, "id": row.id})


def _refused(row: Row, error: errors.ProblemError, outcome: Outcome) -> None:
    status = error.status
    lasting = isinstance(error, errors.ServerFailed) and row.sends + 1 >= FAILURES_MAX
    if not lasting and (status in {401, 403, 429} or status >= 500 or isinstance(error, errors.IdempotencyKeyBusy)):
        wait_ms = max(backoff_ms(row.sends), round((error.retry_after or 0.0) * 1_000))
        certain = status < 500  # Of what failed the outcome may be unknown.
        outcome.delayed.append((row, _reason(error), min(wait_ms, BACKOFF_MS_MAX), certain))
    else:
        outcome.refused.append((row, _reason(error)))


def _reason(error: errors.ProblemError) -> str:
    return f"{error.type.rpartition(':')[2]}: {_PLACE.sub('', str(error))}"


def _in_doubt(age_ms: int) -> str:
    return (
        f"in doubt: it was sent {age_ms // MINUTE_MS:,} minutes ago and no answer came. The server keeps such a job "
        "for less than that once it has ended, and has none now. Look for its effect, then retry or discard the row."
    )
