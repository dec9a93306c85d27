"""Bars: how often messages were received, how long tenants waited, how many retries there were in each moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers.bounds import p99, waits_ms
from penstock.lab.report.scene import Drawing, Key, Scene, Strip, clock, ticks
from penstock.lab.report.svg import THUMB_HEIGHT, Canvas

if TYPE_CHECKING:
    from penstock.lab.history import Event

HEIGHT = 180
_BASE = 24
_TOP = 22
BARS_MAX = 40
_BUCKETS = 60


def _height(canvas: Canvas, part: float) -> float:
    """Return how high a bar is that stands for this part of the scale."""
    return part * ((canvas.height - 6) if canvas.thumb else canvas.height - _BASE - _TOP)


def _base(canvas: Canvas) -> float:
    return canvas.height - 1 if canvas.thumb else canvas.height - _BASE


def receive_counts(scene: Scene, *, thumb: bool) -> Drawing:
    """A bar for each number of receives: how many messages were received so often. Dead letters have their skull."""
    canvas = Canvas(THUMB_HEIGHT if thumb else HEIGHT, thumb=thumb)
    poison = {event.message for event in scene.evidence.of("send") if event.poison}
    dead = {event.message for event in scene.evidence.of("dead")}
    counts: dict[int, list[str]] = {}
    for message, many in scene.evidence.receives().items():
        counts.setdefault(len(many), []).append(message)
    most = int(max(scene.tops.get("receives", 1), 1))
    tallest = max((len(many) for many in counts.values()), default=1)
    slots = max(most, 6)
    base = _base(canvas)
    for often, messages in sorted(counts.items()):
        bad = [message for message in messages if message in poison]
        x, width = (often - 1) / slots, 0.6 / slots
        high = _height(canvas, len(messages) / tallest)
        red = _height(canvas, len(bad) / tallest)
        good = high - red
        if good:
            canvas.rect("f done", x, base - good, width, good)
        if red:
            canvas.rect("f dead", x, base - high, width, red)
        if any(message in dead for message in messages):
            canvas.mark(
                "dead",
                "dead",
                x + width / 2,
                base - high - (6 if thumb else 10),
                9 if thumb else 12,
                title=f"{len(bad)} dead letters",
            )
        if not thumb:
            canvas.text(
                "lbl",
                x + width / 2,
                base - high - (20 if any(m in dead for m in messages) else 6),
                f"{len(messages)}",
                anchor="middle",
            )
    _count_axis(canvas, slots, int(scene.limits.get("receives_max", 0)))
    words = ", ".join(f"{len(many)} received {often} times" for often, many in sorted(counts.items()))
    return Drawing(
        strips=(Strip(canvas=canvas, alt=f"Messages by how often they were received: {words}."),),
        title="Receives of each message",
        unit="messages, by number of receives",
        keys=(
            Key(look="done", field=True, text="good"),
            Key(look="dead", field=True, text="poison"),
            Key(look="dead", mark="dead", text="dead letters"),
        ),
        head=("receives", "messages", "of them poison"),
        rows=tuple(
            (f"{often}", f"{len(many)}", f"{sum(m in poison for m in many)}") for often, many in sorted(counts.items())
        ),
    )


def _count_axis(canvas: Canvas, slots: int, limit: int) -> None:
    base = _base(canvas)
    canvas.line("axis", 0, base, 1, base)
    if canvas.thumb:
        return
    for often in range(1, slots + 1):
        if slots <= 12 or often % 5 == 0 or often == 1:
            canvas.text("tick", (often - 1 + 0.3) / slots, canvas.height - 8, f"{often}", anchor="middle")
    if limit:
        x = (limit - 0.2) / slots
        canvas.line("limit", x, 0, x, base)
        canvas.text("lbl", x, 12, f"dead after {limit}", dx=5)


def tenant_waits(scene: Scene, *, thumb: bool) -> Drawing:
    """A bar for each tenant: its p99 wait. The quiet one is the last, with its limit."""
    canvas = Canvas(THUMB_HEIGHT if thumb else HEIGHT, thumb=thumb)
    waits = {
        tenant: p99([wait for wait, *_ in many]) for tenant, many in waits_ms(scene.evidence, phase="shared").items()
    }
    alone = {
        tenant: p99([wait for wait, *_ in many]) for tenant, many in waits_ms(scene.evidence, phase="alone").items()
    }
    quiet = next(iter(alone), None)
    # A wait of next to nothing alone must not forbid any, as in the check.
    alone_ms = max(alone.get(quiet or "", 0), scene.limits.get("wait_floor_ms", 0))
    limit = alone_ms * scene.limits.get("wait_factor", 0)
    order = sorted(waits, key=lambda tenant: (tenant == quiet, tenant))[-12:]
    tallest = max([*waits.values(), limit, 1]) * 1.08
    base, slots = _base(canvas), len(order) + 1 if quiet else max(len(order), 1)
    for place, tenant in enumerate(order):
        slot = place + 1 if tenant == quiet else place
        high = _height(canvas, waits[tenant] / tallest)
        over = tenant == quiet and waits[tenant] > limit
        look = "f faint" if tenant != quiet else "f dead" if over else "f leased"
        canvas.rect(
            look,
            (slot + 0.22) / slots,
            base - high,
            0.56 / slots,
            high,
            title=f"{tenant}: p99 wait {waits[tenant]:,} ms",
        )
        if not thumb:
            middle = (slot + 0.5) / slots
            y = base - high - 6
            bar = base - _height(canvas, limit / tallest)
            y = bar - 6 if tenant == quiet and -4 < y - bar < 16 else y
            canvas.text("say" if over else "lbl", middle, y, f"{waits[tenant]:,}", anchor="middle")
            canvas.text("tick", middle, canvas.height - 8, tenant[:10], anchor="middle")
    if quiet and limit:
        y = base - _height(canvas, limit / tallest)
        left = (slots - 1.1) / slots
        canvas.line("limit", left, y, 1, y)
        if not thumb:
            canvas.text("lbl", left, y - 5, f"limit {limit:,.0f}", anchor="end", dx=-4)
    canvas.line("axis", 0, base, 1, base)
    words = "; ".join(f"{tenant} {waits[tenant]:,} ms" for tenant in order)
    return Drawing(
        strips=(
            Strip(canvas=canvas, alt=f"p99 wait of each tenant: {words}; the limit of {quiet} is {limit:,.0f} ms."),
        ),
        title="p99 wait of each tenant",
        unit="ms",
        keys=(
            Key(look="faint", field=True, text="busy tenants"),
            Key(look="leased", field=True, text="quiet tenant"),
            Key(look="dead", field=True, text="over its limit"),
        ),
        head=("tenant", "p99 wait, ms", "alone, ms"),
        rows=tuple(
            (tenant, f"{waits[tenant]:,}", f"{alone[tenant]:,}" if tenant in alone else "–") for tenant in order
        ),
    )


def retry_rate(scene: Scene, *, thumb: bool) -> Drawing:
    """How many retries there were in each moment, against the limit of attempts per second."""
    canvas = Canvas(THUMB_HEIGHT if thumb else HEIGHT, thumb=thumb)
    per_second = scene.limits.get("attempts_per_s", 0)
    buckets = _BUCKETS // 2 if thumb else _BUCKETS
    width_ms = max(scene.span_ms / buckets, 1)
    tries: list[Event] = [
        event
        for event in scene.evidence.of("receive")
        if event.type in {"ok", "fail"} and max(event.attempt or 0, event.count or 0) > 1
    ]
    rates = _peaks(sorted(event.t_ms for event in tries), width_ms, buckets)
    top = max(scene.tops.get("retries", 0), per_second, 1) * 1.1
    base = _base(canvas)
    for place, rate in enumerate(rates):
        high = _height(canvas, rate / top)
        if high > 0:
            look = "f dead" if per_second and rate > per_second else "f retrying"
            canvas.rect(look, place / buckets, base - high, 0.72 / buckets, high)
    canvas.line("axis", 0, base, 1, base)
    if per_second:
        y = base - _height(canvas, per_second / top)
        canvas.line("limit", 0, y, 1, y)
        if not thumb:
            canvas.text("lbl", 1, y - 5, f"limit {per_second:g}/s", anchor="end")
    if not thumb:
        for place, (t_ms, words) in enumerate(ticks(scene.span_ms)):
            canvas.text("tick", scene.at(t_ms), canvas.height - 8, words, anchor="start" if place == 0 else "middle")
        peak = max(range(buckets), key=lambda place: rates[place])
        canvas.text(
            "lbl",
            (peak + 0.4) / buckets,
            base - _height(canvas, rates[peak] / top) - 6,
            f"{rates[peak]}/s",
            anchor="middle" if 2 < peak < buckets - 3 else "start",
        )
    return Drawing(
        strips=(
            Strip(
                canvas=canvas,
                alt=(
                    f"{len(tries):,} retries in {clock(scene.span_ms)}, at most {max(rates)} in a second; the "
                    f"limit is {per_second:g}."
                ),
            ),
        ),
        title="Retries",
        unit="in the second before each moment",
        keys=(Key(look="retrying", field=True, text="retries"), Key(look="dead", field=True, text="over the limit")),
        head=("time", "retries per second"),
        rows=tuple((clock(place * width_ms), f"{rate:.0f}") for place, rate in enumerate(rates) if place % 5 == 0),
    )


def _peaks(times: list[int], width_ms: float, buckets: int) -> list[int]:
    """Return for each moment the most retries of any second that ends in it: an average would hide a peak."""
    rates = [0] * buckets
    start = 0
    for place, t_ms in enumerate(times):
        while t_ms - times[start] >= 1_000:
            start += 1
        bucket = min(int(t_ms / width_ms), buckets - 1)
        rates[bucket] = max(rates[bucket], place - start + 1)
    return rates
