"""What became of what was sent: nothing lost, unexpected, stored twice, or deleted too early, too often or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.checkers.evidence import Check, Evidence, Left, Rule, all_of, by_message, earliest, first_of, number

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.lab.history import Event

LOST = Rule(name="nothing-lost", text="Nothing is lost: all that was sent has its effect or is still in a queue")
UNEXPECTED = Rule(name="nothing-unexpected", text="Nothing is received that was not sent")
DUPLICATED = Rule(name="stored-once", text="Each call stores one message")
RECOVERED = Rule(name="recovered", text="A send without an answer is stored once or not at all")
DELETED = Rule(name="all-deleted", text="All that was sent is deleted")
DELETED_ONCE = Rule(name="deleted-once", text="Each good message is deleted exactly once")
ONLY_BAD = Rule(name="only-bad-return", text="Only bad messages are received again")
EARLY = Rule(name="deleted-after-effect", text="Nothing is deleted before its effect")
DRAINED = Rule(name="drained", text="The queue is empty at the end")


def nothing_lost(evidence: Evidence) -> Check:
    """Every message that was certainly sent had its effect, is a dead letter, or is still there."""
    sent = evidence.sent()
    if not sent:
        return LOST.unknown("Nothing was sent")
    if evidence.ledger is None:
        return LOST.unknown("There is no ledger of effects", "no ledger")
    kept = {call.message for call in evidence.ledger}
    kept |= {event.message for event in evidence.of("dead") if event.message is not None}
    missing = set(sent) - kept
    for left in (evidence.left, evidence.dead):
        missing -= set(left.messages or ()) if left is not None else set()
    deleted = first_of(evidence.of("delete", "ok"))
    gone = [message for message in sent if message in missing and message in deleted]
    if not gone and missing:
        unseen = [left for left in (evidence.left, evidence.dead) if _hides(left)]
        if unseen:
            return LOST.unknown(
                f"{number(len(missing), 'message')} without an effect, and nobody looked which messages are left",
                f"{len(missing)} unseen",
                [sent[min(missing, key=lambda message: sent[message].i)]],
            )
        gone = [message for message in sent if message in missing]
    if gone:
        witness = earliest([_trail(evidence, sent[message], deleted.get(message)) for message in gone])
        return LOST.failed(
            len(gone),
            f"{len(gone)} lost",
            f"{len(gone)} of {number(len(sent), 'message')} gone without an effect",
            witness,
        )
    first = next(iter(sent.values()))
    effects = evidence.of("effect", "ok", message=first.message)
    return LOST.held(
        len(sent),
        f"{len(sent)} of {len(sent)}",
        f"{all_of(len(sent), 'message')} accounted for",
        [first, *effects[:1]],
    )


def _hides(left: Left | None) -> bool:
    return left is None or (left.messages is None and left.count > 0)


def _trail(evidence: Evidence, sent: Event, deleted: Event | None) -> tuple[int, list[Event]]:
    """The send and the delete prove a loss; without a delete, the send and the last receive are all there is."""
    if deleted is not None:
        return 2, [sent, deleted]
    receives = evidence.receives().get(sent.message or "", [])
    return 3, [sent, *receives[-1:]]


def nothing_unexpected(evidence: Evidence) -> Check:
    """Every received message was sent, by a send that succeeded or whose outcome is unknown."""
    receives = evidence.receives()
    if not receives:
        return UNEXPECTED.unknown("Nothing was received")
    known = {event.message for event in evidence.of("send") if event.type != "fail"}
    strange = [many[0] for message, many in receives.items() if message not in known]
    if strange:
        return UNEXPECTED.failed(
            len(strange),
            f"{len(strange)} strange",
            f"{number(len(strange), 'message')} received and never sent",
            [strange[0]],
        )
    return UNEXPECTED.held(
        len(receives), f"none of {len(receives)}", f"{all_of(len(receives), 'message')} received sent"
    )


def stored_once(evidence: Evidence) -> Check:
    """Each call of the producer, with all its retries, put one message into the queue.

    What was stored shows in the ids that the queue gave: by what was received, and by what the answers said.
    """
    calls: dict[str, Event] = {}
    for event in evidence.of("send"):
        if event.call is not None:
            calls.setdefault(event.call, event)
    stored: dict[str, dict[str, Event]] = {call: {} for call in calls}
    for event in evidence.events:
        if event.f in {"send", "receive"} and event.type == "ok" and event.call in stored and event.message_id:
            stored[event.call].setdefault(event.message_id, event)
    if not any(event.fault for event in evidence.of("send")):
        return DUPLICATED.unknown("No connection was cut, so no call was repeated", "none cut")
    twice = [(len(many), [calls[call], *list(many.values())[:2]]) for call, many in stored.items() if len(many) > 1]
    if twice:
        total = sum(len(many) for many in stored.values())
        return DUPLICATED.failed(
            len(twice),
            f"{total} stored",
            f"{number(total, 'message')} stored by {number(len(calls), 'call')}",
            earliest(twice),
        )
    none = [calls[call] for call, many in stored.items() if not many]
    if none:
        return DUPLICATED.failed(
            len(none), f"{len(none)} missing", f"{number(len(none), 'call')} stored nothing", none[:1]
        )
    return DUPLICATED.held(
        len(calls),
        f"{len(calls)} of {len(calls)}",
        f"{number(len(calls), 'call')} stored {number(len(calls), 'message')}",
        _first_retry(evidence),
    )


def _first_retry(evidence: Evidence) -> list[Event]:
    cut = next((event for event in evidence.of("send") if event.fault), None)
    again = next((e for e in evidence.of("send", "ok") if cut is not None and e.call == cut.call and e.i > cut.i), None)
    return [event for event in (cut, again) if event is not None]


def recovered(evidence: Evidence) -> Check:
    """Sends of unknown outcome either turn up, once, or do not."""
    unsure = first_of(evidence.of("send", "info"))
    if not unsure:
        return RECOVERED.unknown("Every send was answered", "none open")
    receives = evidence.receives()
    twice = []
    for message, send in unsure.items():
        ids = {event.message_id: event for event in reversed(receives.get(message, [])) if event.message_id}
        if len(ids) > 1:
            twice.append((len(ids), [send, *list(reversed(list(ids.values())))[:2]]))
    if twice:
        return RECOVERED.failed(
            len(twice),
            f"{len(twice)} twice",
            f"{number(len(twice), 'send')} without an answer stored twice",
            earliest(twice),
        )
    turned_up = [message for message in unsure if message in receives]
    return RECOVERED.held(
        len(turned_up),
        f"{len(turned_up)} of {len(unsure)}",
        f"{len(turned_up)} of {number(len(unsure), 'send')} without an answer had been stored",
        [unsure[turned_up[0]], receives[turned_up[0]][0]] if turned_up else [],
    )


def all_deleted(evidence: Evidence, *, messages: Collection[str] | None = None) -> Check:
    """Every message (or every one of `messages`) was deleted by a call that succeeded."""
    sent = {message: event for message, event in evidence.sent().items() if messages is None or message in messages}
    if not sent:
        return DELETED.unknown("Nothing was sent")
    deleted = first_of(evidence.of("delete", "ok"))
    kept = [message for message in sent if message not in deleted]
    if kept:
        receives = evidence.receives().get(kept[0], [])
        return DELETED.failed(
            len(kept),
            f"{len(sent) - len(kept)} of {len(sent)}",
            f"{len(kept)} of {number(len(sent), 'message')} never deleted",
            [sent[kept[0]], *receives[-1:]],
        )
    first = next(iter(sent))
    return DELETED.held(
        len(sent),
        f"{len(sent)} of {len(sent)}",
        f"{all_of(len(sent), 'message')} deleted",
        [sent[first], deleted[first]],
    )


def deleted_once(evidence: Evidence, *, messages: Collection[str]) -> Check:
    """Each of `messages` was deleted by exactly one call."""
    if not messages:
        return DELETED_ONCE.unknown("There was no good message")
    sent = evidence.sent()
    deletes = by_message(evidence.of("delete", "ok"))
    wrong = []
    for message in messages:
        many = deletes.get(message, [])
        if len(many) != 1:
            wrong.append((len(many) or 9, many[:2] if many else [e for e in [sent.get(message)] if e is not None]))
    if wrong:
        return DELETED_ONCE.failed(
            len(wrong),
            f"{len(messages) - len(wrong)} of {len(messages)}",
            f"{len(wrong)} of {number(len(messages), 'good message')} deleted twice or not at all",
            earliest(wrong),
        )
    first = min((deletes[message][0] for message in messages), key=lambda event: event.i)
    return DELETED_ONCE.held(
        len(messages),
        f"{len(messages)} of {len(messages)}",
        f"Each of {number(len(messages), 'good message')} was deleted once",
        [first],
    )


def only_bad_return(evidence: Evidence, *, bad: Collection[str]) -> Check:
    """A message that is not in `bad` was received no second time; those in `bad` were."""
    receives = evidence.receives()
    again = {message: many for message, many in receives.items() if len(many) > 1}
    good = [(2, many[:2]) for message, many in again.items() if message not in bad]
    if good:
        return ONLY_BAD.failed(
            len(good), f"{len(good)} good", f"{number(len(good), 'good message')} received again", earliest(good)
        )
    if not again:
        return ONLY_BAD.unknown("Nothing was received again", "none back")
    return ONLY_BAD.held(
        len(again),
        f"{len(again)} bad",
        f"{number(len(again), 'message')} received again, all of them bad",
        next(iter(again.values()))[:2],
    )


def deleted_after_effect(evidence: Evidence) -> Check:
    """No message was deleted before its effect. An acknowledgement on receipt is caught even if no crash follows."""
    deletes = first_of(evidence.of("delete", "ok"))
    if not deletes:
        return EARLY.unknown("Nothing was deleted")
    effects = first_of(list(evidence.of("effect", "ok", "fail")))
    early = [
        (2, [event for event in (effects.get(message), delete) if event is not None])
        for message, delete in deletes.items()
        if message not in effects or effects[message].i > delete.i
    ]
    if early:
        return EARLY.failed(
            len(early),
            f"{len(early)} early",
            f"{len(early)} of {number(len(deletes), 'delete')} came before the effect",
            earliest(early),
        )
    first = next(iter(deletes))
    return EARLY.held(
        len(deletes),
        f"none of {len(deletes)}",
        f"{all_of(len(deletes), 'delete')} came after the effect",
        [effects[first], deletes[first]],
    )


def drained(evidence: Evidence) -> Check:
    """The queue itself says that nothing is left in it, whatever the consumers believe."""
    if evidence.left is None:
        return DRAINED.unknown("Nobody looked into the queue at the end", "not looked")
    if evidence.left.count:
        return DRAINED.failed(
            evidence.left.count,
            number(evidence.left.count, "message"),
            f"{number(evidence.left.count, 'message')} left in the queue",
            [
                event
                for message in (evidence.left.messages or ())[:1]
                for event in evidence.of("send", "ok", message=message)[:1]
            ],
        )
    return DRAINED.held(0, "0 messages", "Nothing is left in the queue")
