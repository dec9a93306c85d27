"""Each checker, with histories written by hand: held, failed with its smallest witness, and unknown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from penstock.lab.checkers import bounds, dead_letters, delivery, effects, leasing, order, processes
from penstock.lab.checkers.evidence import Check, Evidence, Left
from tests.support.lab.lines import evidence

Case = tuple[str, Callable[[Evidence], Check], Evidence, str, tuple[int, ...]]

ONE = "0 P send m1\n1 A receive m1 count=1\n2 A effect m1\n3 A delete m1"
NO_WORK = "0 P send m1\n1 A receive m1 count=1\n3 A delete m1"
TWICE = ONE + "\n20 B receive m1 count=2\n21 B effect m1\n22 B delete m1"
LATE = "0 P send m1\n1 A receive m1 until_ms=11\n{again} B receive m1 count=2 until_ms=99"

DELIVERY: list[Case] = [
    ("all there", delivery.nothing_lost, evidence(ONE), "held", (1, 3)),
    ("left in the queue", delivery.nothing_lost, evidence("0 P send m1", left=("m1",)), "held", (1,)),
    ("a dead letter", delivery.nothing_lost, evidence("0 P send m1", dead=("m1",)), "held", (1,)),
    ("deleted without effect", delivery.nothing_lost, evidence(NO_WORK), "failed", (1, 3)),
    ("gone without a delete", delivery.nothing_lost, evidence("0 P send m1\n1 A receive m1"), "failed", (1, 2)),
    ("nobody looked", delivery.nothing_lost, evidence("0 P send m1", left=None), "unknown", (1,)),
    ("no ledger", delivery.nothing_lost, evidence(ONE, ledger=None), "unknown", ()),
    ("a send of unknown outcome", delivery.nothing_lost, evidence("0 P send:info m1"), "unknown", ()),
    ("all known", delivery.nothing_unexpected, evidence(ONE), "held", ()),
    ("sent without an answer", delivery.nothing_unexpected, evidence("0 P send:info m1\n1 A receive m1"), "held", ()),
    ("never sent", delivery.nothing_unexpected, evidence("0 P send m1\n1 A receive m2"), "failed", (2,)),
    ("refused", delivery.nothing_unexpected, evidence("0 P send:fail m1\n1 A receive m1"), "failed", (2,)),
    ("none received", delivery.nothing_unexpected, evidence("0 P send m1"), "unknown", ()),
    ("deleted", delivery.all_deleted, evidence(ONE), "held", (1, 4)),
    ("kept", delivery.all_deleted, evidence("0 P send m1\n1 A receive m1"), "failed", (1, 2)),
    ("delete refused", delivery.all_deleted, evidence("0 P send m1\n1 A delete:fail m1"), "failed", (1,)),
    ("none sent", delivery.all_deleted, evidence(""), "unknown", ()),
    ("once", partial(delivery.deleted_once, messages=["m1"]), evidence(ONE), "held", (4,)),
    ("twice", partial(delivery.deleted_once, messages=["m1"]), evidence(TWICE), "failed", (4, 7)),
    ("never", partial(delivery.deleted_once, messages=["m1"]), evidence("0 P send m1"), "failed", (1,)),
    ("no good one", partial(delivery.deleted_once, messages=[]), evidence(ONE), "unknown", ()),
    ("a bad one", partial(delivery.only_bad_return, bad=["m1"]), evidence(TWICE), "held", (2, 5)),
    ("a good one", partial(delivery.only_bad_return, bad=[]), evidence(TWICE), "failed", (2, 5)),
    ("none back", partial(delivery.only_bad_return, bad=["m1"]), evidence(ONE), "unknown", ()),
    ("after", delivery.deleted_after_effect, evidence(ONE), "held", (3, 4)),
    ("before", delivery.deleted_after_effect, evidence("0 A delete m1\n1 A effect m1"), "failed", (1, 2)),
    ("without", delivery.deleted_after_effect, evidence(NO_WORK), "failed", (3,)),
    ("none deleted", delivery.deleted_after_effect, evidence("0 P send m1"), "unknown", ()),
    ("empty", delivery.drained, evidence(ONE), "held", ()),
    ("not empty", delivery.drained, evidence(ONE, left=("m1",)), "failed", (1,)),
    ("not looked", delivery.drained, evidence(ONE, left=None), "unknown", ()),
]

CUT = "0 P send:info m1 call=c fault=cut\n1 P send m1 call=c message_id=q1\n2 A receive m1 call=c message_id={id}"
OPEN = "0 P send:info m1\n1 A receive m1 message_id=q1\n2 A receive m1 message_id={id}"
SENDS: list[Case] = [
    ("recognised", delivery.stored_once, evidence(CUT.format(id="q1")), "held", (1, 2)),
    ("stored again", delivery.stored_once, evidence(CUT.format(id="q2")), "failed", (1, 2, 3)),
    ("stored not at all", delivery.stored_once, evidence("0 P send:info m1 call=c fault=cut"), "failed", (1,)),
    ("none cut", delivery.stored_once, evidence("0 P send m1 call=c message_id=q1"), "unknown", ()),
    ("turned up once", delivery.recovered, evidence(OPEN.format(id="q1")), "held", (1, 2)),
    ("did not turn up", delivery.recovered, evidence("0 P send:info m1"), "held", ()),
    ("turned up twice", delivery.recovered, evidence(OPEN.format(id="q2")), "failed", (1, 2, 3)),
    ("all answered", delivery.recovered, evidence(ONE), "unknown", ()),
]

ORDERS = "0 P send m1 key=o\n1 P send m2 key=o\n2 A effect m1 key=o\n3 B effect:{second} m2 key=o"
STEPS = "0 P send m1\n1 A receive m1\n2 A crash:info m1 step=1\n3 A crash:info m1 step=2"
fresh = partial(effects.fresh_once, age_ms_max=10)
OLD = "0 P send m1\n{at} A receive m1\n{at} A effect:{effect} m1"
EFFECTS: list[Case] = [
    ("one call", effects.effects_once, evidence(ONE), "held", (3,)),
    ("two calls", effects.effects_once, evidence(TWICE), "failed", (2, 3, 5, 6)),
    ("no call", effects.effects_once, evidence(NO_WORK), "failed", (1, 3)),
    ("a call for another", effects.effects_once, evidence(ONE, ledger="m1 m9"), "failed", ()),
    # The process died before it could write the event of its second call.
    (
        "two in the ledger",
        effects.effects_once,
        evidence(TWICE.replace("21 B effect m1\n", ""), ledger="m1 m1"),
        "failed",
        (2, 3, 5),
    ),
    ("no ledger", effects.effects_once, evidence(ONE, ledger=None), "unknown", ()),
    ("none sent", effects.effects_once, evidence(""), "unknown", ()),
    ("only these", partial(effects.effects_once, messages=["m1"]), evidence(ONE + "\n9 P send m2"), "held", (3,)),
    ("one per order", effects.one_call_per_key, evidence(ORDERS.format(second="fail")), "held", (3, 4)),
    ("two per order", effects.one_call_per_key, evidence(ORDERS.format(second="ok")), "failed", (3, 4)),
    ("none for an order", effects.one_call_per_key, evidence("0 P send m1 key=o"), "failed", (1,)),
    ("no order", effects.one_call_per_key, evidence(ONE), "unknown", ()),
    ("sent twice", effects.orders_repeated, evidence(ORDERS.format(second="ok")), "held", (1, 2)),
    ("sent once", effects.orders_repeated, evidence("0 P send m1 key=o"), "unknown", ()),
    ("received twice", effects.received_again, evidence(TWICE), "held", (2, 5)),
    ("received once", effects.received_again, evidence(ONE), "unknown", ()),
    ("every step", partial(effects.crash_at_every_step, steps=2), evidence(STEPS), "held", (3, 4)),
    ("a step left out", partial(effects.crash_at_every_step, steps=3), evidence(STEPS), "unknown", ()),
    (
        "refused",
        partial(effects.stale_refused, age_ms_max=10),
        evidence(OLD.format(at=11, effect="fail")),
        "held",
        (1, 2, 3),
    ),
    (
        "taken",
        partial(effects.stale_refused, age_ms_max=10),
        evidence(OLD.format(at=11, effect="ok")),
        "failed",
        (1, 2, 3),
    ),
    (
        "not counted",
        partial(effects.stale_refused, age_ms_max=10),
        evidence("0 P send m1\n11 A receive m1"),
        "failed",
        (1, 2),
    ),
    ("fresh and done", fresh, evidence(OLD.format(at=10, effect="ok")), "held", (3,)),
    ("fresh and left out", fresh, evidence(OLD.format(at=10, effect="fail")), "failed", (1,)),
    ("on the border", partial(fresh, tolerance_ms=1), evidence(OLD.format(at=10, effect="fail")), "unknown", ()),
    (
        "fresh and done twice",
        fresh,
        evidence("0 P send m1\n1 A receive m1\n2 A effect m1\n3 B receive m1\n4 B effect m1"),
        "failed",
        (2, 3, 4, 5),
    ),
    (
        "stale when it came back",
        fresh,
        evidence("0 P send m1\n1 A receive m1\n2 A start m1\n20 B receive m1\n21 B start m1\n22 B effect:fail m1"),
        "unknown",
        (),
    ),
    ("twice", effects.received_twice, evidence(LATE.format(again=11)), "held", (2, 3)),
    ("never twice", effects.received_twice, evidence(ONE), "unknown", ()),
    (
        "none stale",
        partial(effects.stale_refused, age_ms_max=10),
        evidence(OLD.format(at=10, effect="ok")),
        "unknown",
        (),
    ),
]

exclusive = partial(leasing.leases_exclusive, visibility_ms=10)
never_before = partial(leasing.never_before, visibility_ms=10)
stale = partial(leasing.stale_reports_refused, visibility_ms=10)
idle = partial(leasing.none_idle, visibility_ms=10)
CRASH = "0 P send m1\n1 A receive m1\n2 A crash:info m1"
REPORT = "1 A receive m1\n12 B receive m1\n13 A report:{late} m1\n14 B report m1"
HANDLE = "1 A receive m1\n12 B receive m1\n13 A delete:{late} m1 queue={queue}"
REPEAT = "0 P send m1\n1 A receive:info - call=c\n2 A receive m1 call=c count={count}"
LEASES: list[Case] = [
    ("after", exclusive, evidence(LATE.format(again=11)), "held", (2, 3)),
    ("while it ran", exclusive, evidence(LATE.format(again=10)), "failed", (2, 3)),
    ("within tolerance", partial(exclusive, tolerance_ms=1), evidence(LATE.format(again=10)), "held", (2, 3)),
    ("after a delete", exclusive, evidence("1 A receive m1\n2 A delete m1\n3 B receive m1"), "held", (1, 3)),
    ("extended", exclusive, evidence("1 A receive m1\n2 A extend m1 until_ms=30\n12 B receive m1"), "failed", (1, 3)),
    ("given back", exclusive, evidence("1 A receive m1\n2 A extend m1 until_ms=2\n3 B receive m1"), "held", (1, 3)),
    ("no lease", exclusive, evidence("0 P send m1"), "unknown", ()),
    ("back", leasing.redelivered, evidence(CRASH + "\n12 B receive m1"), "held", (3, 4)),
    ("lost", leasing.redelivered, evidence(CRASH), "failed", (2, 3)),
    ("no crash", leasing.redelivered, evidence(ONE), "unknown", ()),
    ("in time", never_before, evidence(LATE.format(again=11)), "held", (2, 3)),
    ("too early", never_before, evidence(LATE.format(again=10)), "failed", (2, 3)),
    ("never again", never_before, evidence(ONE), "unknown", ()),
    ("late refused", stale, evidence(REPORT.format(late="fail")), "held", (1, 2, 3)),
    ("late accepted", stale, evidence(REPORT.format(late="ok")), "failed", (1, 2, 3)),
    ("none late", stale, evidence("1 A receive m1\n3 A report m1"), "unknown", ()),
    ("a late delete, FIFO", stale, evidence(HANDLE.format(late="fail", queue="q.fifo")), "held", (1, 2, 3)),
    ("a late delete that works", stale, evidence(HANDLE.format(late="ok", queue="q.fifo")), "failed", (1, 2, 3)),
    ("a late delete, standard", stale, evidence(HANDLE.format(late="ok", queue="q")), "unknown", ()),
    ("the same", leasing.same_messages_again, evidence(REPEAT.format(count=1)), "held", (2, 3)),
    ("a second lease", leasing.same_messages_again, evidence(REPEAT.format(count=2)), "failed", (2, 3)),
    ("nothing", leasing.same_messages_again, evidence("1 A receive:info - call=c"), "failed", (1,)),
    ("none cut", leasing.same_messages_again, evidence(ONE), "unknown", ()),
    ("at once", idle, evidence(REPEAT.format(count=1)), "held", ()),
    ("a lease later", idle, evidence("1 A receive:info - call=c\n11 A receive m1 count=2"), "failed", (1, 2)),
    ("as long as a lease", idle, evidence("1 A receive:info - call=c\n11 A receive m1 count=1"), "failed", (1, 2)),
    ("none lost", idle, evidence(ONE), "unknown", ()),
]

FIFO = "1 A effect m1 sequence=1 group=g\n2 B effect m2 sequence={second} group={group}"
HOLD = "1 A receive m1 group=g\n{at} {who} receive m2 group={group}"
RISE = "0 A receive m2 version=2\n1 A apply m2 version=2\n2 A receive m1 version=1\n3 A apply:{stale} m1 version=1"
SENT = "0 P send m1 entity=e version=1\n1 P send m2 entity=e version=2\n2 A apply m2 entity=e version=2"
overlap = partial(order.no_overlap, visibility_ms=10)
ORDER: list[Case] = [
    ("in order", order.fifo_order, evidence(FIFO.format(second=2, group="g")), "held", (1, 2)),
    ("out of order", order.fifo_order, evidence(FIFO.format(second=0, group="g")), "failed", (1, 2)),
    ("twice", order.fifo_order, evidence(FIFO.format(second=1, group="g")), "failed", (1, 2)),
    ("other groups", order.fifo_order, evidence(FIFO.format(second=0, group="h")), "unknown", ()),
    ("one only", order.fifo_order, evidence("1 A effect m1 sequence=1"), "unknown", ()),
    ("one after the other", overlap, evidence(HOLD.format(at=11, who="B", group="g")), "held", ()),
    ("at once", overlap, evidence(HOLD.format(at=10, who="B", group="g")), "failed", (1, 2)),
    ("a batch of one holder", overlap, evidence(HOLD.format(at=2, who="A", group="g")), "held", ()),
    ("of another group", overlap, evidence(HOLD.format(at=2, who="B", group="h")), "held", ()),
    ("one message", overlap, evidence("1 A receive m1 group=g"), "unknown", ()),
    ("two workers", order.work_shared, evidence("1 A effect m1\n2 B effect m2"), "held", (1, 2)),
    ("one worker", order.work_shared, evidence("1 A effect m1\n2 A effect m2"), "failed", (1,)),
    ("no work", order.work_shared, evidence("0 P send m1"), "unknown", ()),
    ("stale left out", order.versions_rise, evidence(RISE.format(stale="fail")), "held", (4,)),
    ("stale applied", order.versions_rise, evidence(RISE.format(stale="ok")), "failed", (2, 4)),
    ("all in order", order.versions_rise, evidence("0 A receive m1 version=1\n1 A apply m1 version=1"), "unknown", ()),
    ("none applied", order.versions_rise, evidence("0 A receive m1 version=1"), "unknown", ()),
    ("the highest", order.highest_wins, evidence(SENT, state={"e": 2}), "held", (2,)),
    ("a lower one", order.highest_wins, evidence(SENT, state={"e": 1}), "failed", (2, 3)),
    ("nothing kept", order.highest_wins, evidence(SENT, state={}), "failed", (2, 3)),
    ("not looked", order.highest_wins, evidence(SENT), "unknown", ()),
    ("no version", order.highest_wins, evidence(ONE, state={"e": 1}), "unknown", ()),
]

BAD = "0 P send m1\n1 A receive m1\n2 A receive m1\n3 R dead m1"
expected = partial(dead_letters.dead_letters_are, expected=["m1"])
after_two = partial(dead_letters.dead_after, expected=["m1"], receives=2)
MOVED = "0 R dead m1\n{fix} R fix\n2 R move m1"
DEAD: list[Case] = [
    ("the set", expected, evidence(BAD, dead=("m1",)), "held", (1, 4)),
    ("missing", expected, evidence(BAD, dead=()), "failed", (1, 3)),
    ("another", expected, evidence(BAD, dead=("m1", "m9")), "failed", ()),
    ("twice", expected, evidence(BAD, dead=("m1", "m1")), "failed", (1, 3)),
    ("not looked", expected, evidence(BAD, dead=None), "unknown", ()),
    ("no poison", partial(dead_letters.dead_letters_are, expected=[]), evidence(ONE), "unknown", ()),
    ("two receives", after_two, evidence(BAD), "held", (2, 3)),
    ("three receives", after_two, evidence(BAD + "\n4 A receive m1"), "failed", (2, 3, 5)),
    ("one receive", after_two, evidence("0 P send m1\n1 A receive m1"), "failed", (2,)),
    ("none", after_two, evidence("0 P send m1"), "unknown", ()),
    ("none dead", dead_letters.no_dead_letters, evidence(ONE), "held", ()),
    ("one dead", dead_letters.no_dead_letters, evidence(ONE, dead=("m1",)), "failed", (2,)),
    ("nobody knows", dead_letters.no_dead_letters, evidence(ONE, dead=None), "unknown", ()),
    ("after the fix", dead_letters.moved_back, evidence("0 R dead m1\n1 R fix\n2 R move m1"), "held", (1, 3)),
    ("before the fix", dead_letters.moved_back, evidence("0 R dead m1\n1 R move m1\n2 R fix"), "failed", (2, 3)),
    ("without a fix", dead_letters.moved_back, evidence("0 R dead m1\n1 R move m1"), "failed", (2,)),
    ("left there", dead_letters.moved_back, evidence("0 R dead m1\n1 R fix"), "failed", (1,)),
    ("none died", dead_letters.moved_back, evidence(ONE), "unknown", ()),
]

STOP = "0 P send m1\n0 P send m2\n1 A receive m1\n2 A signal:info\n{rest}"
DONE = STOP.format(rest="3 A effect m1\n4 A delete m1\n5 A exit code=0")
flight = partial(processes.in_flight_finished, visibility_ms=10)
PURGE = "0 P send m1\n1 R purge\n{rest}"
survives = processes.survives_after
RELIED = PURGE.format(rest="61 P send m2 phase=relied-on")
second = partial(processes.second_purge_refused, window_ms=60)
PROCESSES: list[Case] = [
    ("0", processes.exit_is_zero, evidence(DONE), "held", (4, 7)),
    ("143", processes.exit_is_zero, evidence(STOP.format(rest="3 A exit code=143")), "failed", (5,)),
    ("no exit", processes.exit_is_zero, evidence(STOP.format(rest="")), "unknown", ()),
    ("no signal", processes.exit_is_zero, evidence("3 A exit code=0"), "unknown", ()),
    ("finished", flight, evidence(DONE), "held", (3, 4, 6)),
    ("cut off", flight, evidence(STOP.format(rest="3 A exit code=143")), "failed", (3, 4)),
    ("deleted without the work", flight, evidence(STOP.format(rest="3 A delete m1")), "failed", (3, 4)),
    ("in the history only", flight, evidence(DONE, ledger=""), "failed", (3, 4)),
    ("nothing in flight", flight, evidence("0 P send m1\n2 A signal:info"), "unknown", ()),
    ("no signal", flight, evidence(ONE), "unknown", ()),
    ("left alone", processes.rest_not_received, evidence(DONE), "held", (4,)),
    ("taken", processes.rest_not_received, evidence(DONE + "\n6 A receive m2"), "failed", (4, 8)),
    ("by another", processes.rest_not_received, evidence(DONE + "\n6 B receive m2"), "held", (4,)),
    ("no signal", processes.rest_not_received, evidence(ONE), "unknown", ()),
    ("there", processes.rest_remains, evidence(DONE, left=("m2",)), "held", ()),
    ("gone", processes.rest_remains, evidence(DONE, left=()), "failed", (2,)),
    ("not looked", processes.rest_remains, evidence(DONE, left=None), "unknown", ()),
    ("no rest", processes.rest_remains, evidence(ONE), "unknown", ()),
    ("gone", processes.purged, evidence(PURGE.format(rest="")), "held", (1, 2)),
    ("received later", processes.purged, evidence(PURGE.format(rest="9 A receive m1")), "failed", (1, 2, 3)),
    ("still there", processes.purged, evidence(PURGE.format(rest=""), left=("m1",)), "failed", (1, 2)),
    ("refused", processes.purged, evidence("0 P send m1\n1 R purge:fail"), "unknown", ()),
    ("of nothing", processes.purged, evidence("1 R purge"), "unknown", ()),
    ("there", survives, evidence(f"{RELIED}\n62 A receive m2"), "held", (2, 3)),
    ("left there", survives, evidence(RELIED, left=("m2",)), "held", (2, 3)),
    ("lost", survives, evidence(RELIED), "failed", (2, 3)),
    ("only tried", survives, evidence(PURGE.format(rest="9 P send m2 phase=probe")), "unknown", ()),
    ("lost in another round", survives, evidence(f"0 R purge\n{RELIED}"), "failed", (3, 4)),
    (
        "outlived the second purge",
        processes.purged,
        evidence("0 P send m1\n1 R purge\n2 P send m2\n70 R purge\n71 A receive m2"),
        "failed",
        (3, 4, 5),
    ),
    (
        "deleted before the second purge",
        processes.purged,
        evidence("0 P send m1\n1 R purge\n2 P send m2\n3 A receive m2\n4 A delete m2\n70 R purge"),
        "held",
        (1, 2),
    ),
    ("no purge", survives, evidence(ONE), "unknown", ()),
    ("refused", second, evidence("1 R purge\n60 R purge:fail"), "held", (1, 2)),
    ("accepted", second, evidence("1 R purge\n60 R purge"), "failed", (1, 2)),
    ("after the window", second, evidence("1 R purge\n61 R purge"), "unknown", ()),
]


def samples(*values: tuple[int, int]) -> str:
    """A sample each second, of depth and consumers."""
    lines = [f"{place * 1_000} R sample depth={d} consumers={c} in_flight=0" for place, (d, c) in enumerate(values)]
    return "\n".join(lines)


LOAD = samples((0, 1), (12, 2), (9, 2), (8, 2), (7, 1))
settle = partial(bounds.equilibrium, threshold=10, ticks=3)
RATE = "\n".join(f"{t_ms} A receive m{t_ms} count=2" for t_ms in (0, 500, 999, 1_000, 1_500))
WAIT = "0 P send a tenant=q phase=alone\n100 A receive a\n200 P send b tenant=q phase=shared\n{at} A receive b"
quiet = partial(bounds.quiet_wait, tenant="q", factor=3)
# Two messages that stay 1 s each within 2 s: on average one is inside.
STEADY = "0 P send m1\n1000 A delete m1\n1000 P send m2\n2000 A delete m2\n{samples}"
FLOW = "\n".join(f"{t_ms} R sample depth={{depth}} in_flight=0" for t_ms in range(0, 2_001, 500))
BOUNDS: list[Case] = [
    ("below", partial(bounds.depth_bounded, bound=12), evidence(LOAD), "held", (2,)),
    ("above", partial(bounds.depth_bounded, bound=11), evidence(LOAD), "failed", (2,)),
    ("not sampled", partial(bounds.depth_bounded, bound=11), evidence(ONE), "unknown", ()),
    ("settles", settle, evidence(LOAD), "held", (3, 4, 5)),
    ("rises again", settle, evidence(LOAD + "\n5000 R sample depth=10"), "failed", (2, 6)),
    ("not long enough", settle, evidence(samples((12, 1), (9, 1), (9, 1))), "failed", (1, 3)),
    ("never loaded", settle, evidence(samples((1, 1), (2, 1))), "unknown", ()),
    ("down again", bounds.consumers_go_down, evidence(LOAD), "held", (1, 2, 5)),
    ("stay up", bounds.consumers_go_down, evidence(samples((0, 1), (0, 2))), "failed", (1, 2)),
    ("never up", bounds.consumers_go_down, evidence(samples((0, 1), (0, 1))), "failed", (1, 2)),
    ("not counted", bounds.consumers_go_down, evidence(ONE), "unknown", ()),
    ("L = λW", bounds.littles_law, evidence(STEADY.format(samples=FLOW.format(depth=1))), "held", ()),
    ("L ≠ λW", bounds.littles_law, evidence(STEADY.format(samples=FLOW.format(depth=5))), "failed", ()),
    ("no samples", bounds.littles_law, evidence(ONE), "unknown", ()),
    ("three a second", partial(bounds.peak_bounded, per_second=3), evidence(RATE), "held", (1,)),
    ("more than two", partial(bounds.peak_bounded, per_second=2), evidence(RATE), "failed", (1, 2, 3)),
    ("no retry", partial(bounds.peak_bounded, per_second=2), evidence(ONE), "unknown", ()),
    ("three times as long", quiet, evidence(WAIT.format(at=500)), "held", (3, 4)),
    ("longer", quiet, evidence(WAIT.format(at=501)), "failed", (3, 4)),
    ("a wait of nothing", partial(quiet, floor_ms=200), evidence(WAIT.format(at=800)), "held", (3, 4)),
    ("not measured alone", quiet, evidence(WAIT.format(at=500).replace("phase=alone", "")), "unknown", ()),
]

TABLES: dict[str, list[Case]] = {
    "delivery": DELIVERY,
    "sends": SENDS,
    "effects": EFFECTS,
    "leases": LEASES,
    "order": ORDER,
    "dead": DEAD,
    "processes": PROCESSES,
    "bounds": BOUNDS,
}
CASES = [pytest.param(*case[1:], id=f"{name}: {case[0]}") for name, cases in TABLES.items() for case in cases]


@pytest.mark.parametrize(("check", "seen", "verdict", "witness"), CASES)
def test_a_checker_judges_and_names_the_smallest_witness(
    check: Callable[[Evidence], Check], seen: Evidence, verdict: str, witness: tuple[int, ...]
) -> None:
    found = check(seen)
    assert (found.verdict, found.witness) == (verdict, witness), found
    assert found.rule
    assert found.figure
    assert not found.sentence.endswith(".")


def test_every_checker_is_seen_in_all_verdicts_that_it_can_give() -> None:
    seen: dict[str, set[str]] = {}
    for case in (case for cases in TABLES.values() for case in cases):
        seen.setdefault(case[1](case[2]).name, set()).add(case[3])
    # These only say whether a rule was put to the test at all.
    preconditions = {"received-again", "received-twice", "crash-at-every-step", "orders-repeated"}
    assert {name for name, verdicts in seen.items() if verdicts != {"held", "failed", "unknown"}} == preconditions
    assert all(seen[name] == {"held", "unknown"} for name in preconditions)


def test_a_queue_that_only_counts_does_not_say_what_is_lost() -> None:
    seen = msgspec.structs.replace(evidence("0 P send m1"), left=Left(count=1))
    assert delivery.nothing_lost(seen).verdict == "unknown"
    seen = msgspec.structs.replace(evidence("0 P send m1"), left=Left(count=0))
    assert delivery.nothing_lost(seen).verdict == "failed"


@pytest.mark.parametrize(("values", "expected"), [([5], 5), (list(range(1, 101)), 99), (list(range(1, 201)), 198)])
def test_p99_is_the_nearest_rank(values: list[int], expected: int) -> None:
    assert bounds.p99(values) == expected
