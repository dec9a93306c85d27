"""Streams as text: offers as lines of JSON, events as server-sent events."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError
from penstock.wire.jobs.answers import StreamLine, label
from penstock.wire.jobs.problems import problem_of
from penstock.wire.jobs.views import event_view, offer_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from penstock.domain.job import EventFilter, JobEvent, Offer
    from penstock.engine.jobs.looking import Looking
    from penstock.engine.jobs.streams import OfferStream
    from penstock.wire.jobs.tokens import LeaseTokens

NDJSON = "application/x-ndjson"
SERVER_SENT_EVENTS = "text/event-stream"
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_KEEP_ALIVE = _encode(StreamLine(keep_alive=True)) + b"\n"
_HELD_BACK = _encode(StreamLine(keep_alive=True, held_back=True)) + b"\n"
_DRAIN = _encode(StreamLine(drain=True)) + b"\n"
_BEAT = b": keep-alive\n\n"


async def offer_lines(
    stream: OfferStream, tokens: LeaseTokens, offered: Callable[[list[Offer]], None]
) -> AsyncGenerator[bytes]:
    """Write a stream of offers, a line each: first its name, in the end `drain`. `offered` is called with them."""
    yield _encode(StreamLine(stream=stream.name)) + b"\n"
    try:
        async with contextlib.aclosing(stream.batches()) as batches:
            async for offers in batches:
                offered(offers)
                encode = tokens.encode
                lines = [StreamLine(offer=offer_view(offer, encode(offer.lease))) for offer in offers]
                yield _encode_lines(lines) or (_HELD_BACK if stream.held_back else _KEEP_ALIVE)
    except PenstockError as error:
        # The status was sent long ago.
        yield _encode({"problem": problem_of(error)}) + b"\n"
    yield _DRAIN


async def event_stream(looking: Looking, job_id: str, after: int, wanted: EventFilter) -> AsyncGenerator[bytes]:
    """Write a job's events as they come. After the last there is one of the kind `end`, with the job's state."""
    try:
        async with contextlib.aclosing(looking.follow(job_id, after=after, wanted=wanted)) as news:
            async for part in news:
                text = b"".join([_event(event) for event in part.events])
                if part.ended is not None:
                    text += b"event: end\ndata: " + _encode({"state": label(part.ended)}) + b"\n\n"
                yield text or _BEAT
    except PenstockError as error:
        yield b"event: problem\ndata: " + _encode(problem_of(error)) + b"\n\n"


def _event(event: JobEvent) -> bytes:
    # JSON inside of it may be spread over lines, and a line of data ends with the line.
    data = _encode(event_view(event)).replace(b"\r", b" ").replace(b"\n", b" ")
    kind = event.kind.encode()
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, kind, data)
