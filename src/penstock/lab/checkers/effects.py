"""Calls outside, by the ledger: exactly one for each message or order, whatever crashed, and none for what is stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.lab.checkers.evidence import Call, Check, Evidence, Rule, by_message, earliest, number, seconds

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.lab.history import Event

ONCE = Rule(name="effects-once", text="Each message causes exactly one call")
PER_KEY = Rule(name="one-call-per-order", text="Each order causes exactly one call")
RECEIVED = Rule(name="received-again", text="Each message is received at least twice")
EVERY_STEP = Rule(name="crash-at-every-step", text="Every message meets a crash at each step")
STALE = Rule(name="stale-refused", text="Every stale message is counted, and none has an effect")
TWICE = Rule(name="received-twice", text="Some messages are received twice, as in any burst")
SHARED_KEYS = Rule(name="orders-repeated", text="Each order is sent at least twice, under different ids")


def effects_once(evidence: Evidence, *, messages: Collection[str] | None = None) -> Check:
    """The ledger has one call for each message sent (or each of `messages`), and none for any other."""
    if evidence.ledger is None:
        return ONCE.unknown("There is no ledger of calls", "no ledger")
    sent = evidence.sent()
    expected = set(sent) if messages is None else set(messages)
    if not expected:
        return ONCE.unknown("Nothing was sent")
    calls: dict[str, list[Call]] = {message: [] for message in expected}
    for call in evidence.ledger:
        calls.setdefault(call.message, []).append(call)
    wrong = {m: many for m, many in calls.items() if len(many) != (1 if m in expected else 0)}
    total = len(evidence.ledger)
    found = f"{number(total, 'call')} for {number(len(expected), 'message')}"
    if not wrong:
        first = min((m for m in calls if m in sent), key=lambda m: sent[m].i, default=None)
        witness = [] if first is None else [*evidence.of("effect", message=first)[:2]]
        return ONCE.held(len(expected), number(total, "call"), found, witness)
    proofs = [(len(proof), proof) for m, many in wrong.items() if (proof := _proof(evidence, m, many))]
    return ONCE.failed(len(wrong), number(total, "call"), found, earliest(proofs) if proofs else ())


def _proof(evidence: Evidence, message: str, calls: list[Call]) -> list[Event]:
    """The receives and effects of two calls, or the send and the delete of none.

    A process that died after its call left no event of it; its receive then stands for it.
    """
    if not calls:
        return [*evidence.of("send", "ok", message=message)[:1], *evidence.of("delete", "ok", message=message)[:1]]
    effects = evidence.of("effect", "ok", message=message)[:2]
    receives = evidence.of("receive", "ok", message=message)
    if len(effects) < 2:
        return [*receives[:2], *effects]
    got = [
        max((r for r in receives if r.i < e.i and r.process == e.process), key=lambda r: r.i, default=None)
        for e in effects
    ]
    return sorted(
        {event.i: event for event in [*got, *effects] if event is not None}.values(), key=lambda event: event.i
    )


def one_call_per_key(evidence: Evidence) -> Check:
    """The ledger has one call for each key that was sent, however many messages carried it."""
    if evidence.ledger is None:
        return PER_KEY.unknown("There is no ledger of calls", "no ledger")
    keys = _keys(evidence)
    if not keys:
        return PER_KEY.unknown("No message had an order")
    calls: dict[str | None, list[Call]] = {key: [] for key in keys}
    for call in evidence.ledger:
        calls.setdefault(call.key, []).append(call)
    found = f"{number(len(evidence.ledger), 'call')} for {number(len(keys), 'order')}"
    figure = number(len(evidence.ledger), "call")
    wrong = [key for key, many in calls.items() if len(many) != 1 or key not in keys]
    if wrong:
        proofs = []
        for key in wrong:
            effects = [event for event in evidence.of("effect", "ok") if event.key == key][:2]
            proofs.append((len(effects) or 9, effects or keys.get(key or "", [])[:1]))
        return PER_KEY.failed(len(wrong), figure, found, earliest(proofs))
    first = next(iter(keys))
    return PER_KEY.held(len(keys), figure, found, [event for event in evidence.of("effect") if event.key == first][:2])


def orders_repeated(evidence: Evidence) -> Check:
    """Each key came in at least two messages; otherwise nothing was put to the test."""
    keys = _keys(evidence)
    single = [key for key, sends in keys.items() if len({event.message for event in sends}) < 2]
    if not keys or single:
        return SHARED_KEYS.unknown(f"{number(len(single), 'order')} came in one message only", f"{len(single)} single")
    messages = sum(len({event.message for event in sends}) for sends in keys.values())
    return SHARED_KEYS.held(
        len(keys),
        f"{len(keys)} of {len(keys)}",
        f"{number(messages, 'message')} for {number(len(keys), 'order')}",
        next(iter(keys.values()))[:2],
    )


def _keys(evidence: Evidence) -> dict[str, list[Event]]:
    keys: dict[str, list[Event]] = {}
    for event in evidence.of("send", "ok"):
        if event.key is not None:
            keys.setdefault(event.key, []).append(event)
    return keys


def received_again(evidence: Evidence, *, least: int = 2, messages: Collection[str] | None = None) -> Check:
    """Each message was received at least `least` times; otherwise a rule about redelivery was never put to the test."""
    receives = evidence.receives()
    wanted = evidence.sent() if messages is None else dict.fromkeys(messages)
    often = [message for message in wanted if len(receives.get(message, [])) >= least]
    figure = f"{len(often)} of {len(wanted)}"
    if not wanted or len(often) < len(wanted):
        return RECEIVED.unknown(
            f"{number(len(wanted) - len(often), 'message')} not received {least} times, so the rule was not "
            "put to the test",
            figure,
        )
    total = sum(len(many) for many in receives.values())
    return RECEIVED.held(
        len(often),
        figure,
        f"{number(total, 'receive')} of {number(len(wanted), 'message')}",
        receives[often[0]][:least],
    )


def crash_at_every_step(evidence: Evidence, *, steps: int = 6) -> Check:
    """Every message met a crash at every step; a step that no process crashed at was not put to the test."""
    crashes: dict[str, dict[int, Event]] = {message: {} for message in evidence.sent()}
    for event in evidence.of("crash"):
        if event.message in crashes and event.step is not None:
            crashes[event.message].setdefault(event.step, event)
    missing = sum(steps - len(seen) for seen in crashes.values())
    total = sum(len(seen) for seen in crashes.values())
    if not crashes or missing:
        return EVERY_STEP.unknown(
            f"{missing} of {len(crashes) * steps} crashes did not happen", f"{total} of {len(crashes) * steps}"
        )
    first = next(iter(crashes.values()))
    return EVERY_STEP.held(
        total,
        number(total, "crash", "crashes"),
        f"{number(total, 'crash', 'crashes')} at {steps} steps",
        first.values(),
    )


def _ages(evidence: Evidence) -> dict[str, list[tuple[int, Event]]]:
    """Return how old each message was whenever work on it began, with the event; where nobody noted that, received."""
    sent = evidence.sent()
    begun = evidence.receives() | by_message(evidence.of("start", "ok"))
    stamps = {m: many[0].sent_ms for m, many in evidence.receives().items()}
    return {
        message: [(event.t_ms - (stamps.get(message) or sent[message].t_ms), event) for event in events]
        for message, events in begun.items()
        if message in sent
    }


def stale_messages(evidence: Evidence, *, age_ms_max: int) -> dict[str, Event]:
    """Return the messages that were older than `age_ms_max` when work on them began, with the event that shows it.

    One that was fresh when work on it began first is not stale, however often it came back.
    """
    return {message: ages[0][1] for message, ages in _ages(evidence).items() if ages[0][0] > age_ms_max}


def fresh_once(evidence: Evidence, *, age_ms_max: int, tolerance_ms: int = 0) -> Check:
    """Each message that was not stale has exactly one call.

    One that was fresh at first and stale when it came back may have none, and so may one on the border.
    """
    if evidence.ledger is None:
        return ONCE.unknown("There is no ledger of calls", "no ledger")
    ages = _ages(evidence)
    stale = stale_messages(evidence, age_ms_max=age_ms_max)
    called = {call.message for call in evidence.ledger}
    excused = {
        message
        for message, many in ages.items()
        if message not in called and max(age_ms for age_ms, _ in many) > age_ms_max - tolerance_ms
    }
    fresh = [message for message in evidence.sent() if message not in stale and message not in excused]
    calls = tuple(call for call in evidence.ledger if call.message not in stale)
    return effects_once(msgspec.structs.replace(evidence, ledger=calls), messages=fresh)


def received_twice(evidence: Evidence) -> Check:
    """Some message was received twice; otherwise nothing put it to the test that work is done once."""
    again = [many for many in evidence.receives().values() if len(many) > 1]
    if not again:
        return TWICE.unknown("No message was received twice, so the rule was not put to the test", "none")
    return TWICE.held(
        len(again),
        f"{len(again)} twice",
        f"{number(len(again), 'message')} received twice or more often",
        min(again, key=lambda many: many[1].i)[:2],
    )


def stale_refused(evidence: Evidence, *, age_ms_max: int, tolerance_ms: int = 0) -> Check:
    """What was older than `age_ms_max` when work on it began has a refused effect, and no other."""
    sent = evidence.sent()
    stale = stale_messages(evidence, age_ms_max=age_ms_max + tolerance_ms)
    if not stale:
        return STALE.unknown(f"Nothing was older than {seconds(age_ms_max)} when work on it began", "none stale")
    if evidence.ledger is None:
        return STALE.unknown("There is no ledger of calls", "no ledger")
    called = {call.message for call in evidence.ledger}
    refused = {event.message for event in evidence.of("effect", "fail")}
    wrong = [message for message in stale if message in called or message not in refused]
    if wrong:
        proofs = [(3, [sent[m], stale[m], *evidence.of("effect", "ok", message=m)[:1]]) for m in wrong]
        return STALE.failed(
            len(wrong),
            f"{len(wrong)} of {len(stale)}",
            f"{len(wrong)} of {number(len(stale), 'stale message')} had an effect or were not counted",
            earliest(proofs),
        )
    first = next(iter(stale))
    return STALE.held(
        len(stale),
        f"{len(stale)} stale",
        f"{number(len(stale), 'stale message')} counted, and none had an effect",
        [sent[first], stale[first], *evidence.of("effect", "fail", message=first)[:1]],
    )
