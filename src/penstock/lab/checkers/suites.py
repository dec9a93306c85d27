"""Which checks judge which scenario, and which of them the broken variant must fail."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.lab.checkers import bounds, dead_letters, delivery, effects, leasing, order, processes
from penstock.lab.checkers.evidence import Check, Evidence


class Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What checks need to know of how the run was made. The runner takes these from the scenario's own knobs."""

    visibility_ms: int = 10_000
    tolerance_ms: int = 0
    """How much clocks may disagree. Nothing on our own server under a manual clock, more across a network."""
    receives_max: int = 2
    steps: int = 6
    depth_bound: int = 40
    depth_threshold: int = 10
    equilibrium_ticks: int = 3
    purge_window_ms: int = 60_000
    stale_ms: int = 60_000
    quiet_tenant: str = "quiet"
    wait_factor: float = 3.0
    wait_floor_ms: int = 0
    attempts_per_s: int = 60


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of one scenario."""

    breaks: str
    """The check that the broken variant must fail, by its name."""
    check: Callable[[Evidence, Knobs], list[Check]]


def _poison(evidence: Evidence) -> list[str]:
    return [message for message, event in evidence.sent().items() if event.poison]


def _good(evidence: Evidence) -> list[str]:
    return [message for message, event in evidence.sent().items() if not event.poison]


def _happy(seen: Evidence, _: Knobs) -> list[Check]:
    return [
        effects.effects_once(seen),
        delivery.all_deleted(seen),
        delivery.nothing_lost(seen),
        delivery.nothing_unexpected(seen),
        delivery.deleted_after_effect(seen),
        delivery.drained(seen),
        dead_letters.no_dead_letters(seen),
    ]


def _crash(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        leasing.redelivered(seen),
        leasing.never_before(seen, visibility_ms=knobs.visibility_ms, tolerance_ms=knobs.tolerance_ms),
        effects.effects_once(seen),
        delivery.nothing_lost(seen),
        delivery.deleted_after_effect(seen),
        dead_letters.no_dead_letters(seen),
    ]


def _duplicates(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        effects.received_again(seen),
        effects.effects_once(seen),
        delivery.all_deleted(seen),
        leasing.leases_exclusive(seen, visibility_ms=knobs.visibility_ms, tolerance_ms=knobs.tolerance_ms),
        dead_letters.no_dead_letters(seen),
    ]


def _business_idempotency(seen: Evidence, _: Knobs) -> list[Check]:
    return [
        effects.orders_repeated(seen),
        effects.one_call_per_key(seen),
        delivery.all_deleted(seen),
        dead_letters.no_dead_letters(seen),
    ]


def _poison_messages(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        dead_letters.dead_letters_are(seen, expected=_poison(seen)),
        dead_letters.dead_after(seen, expected=_poison(seen), receives=knobs.receives_max),
        effects.effects_once(seen, messages=_good(seen)),
        delivery.all_deleted(seen, messages=_good(seen)),
        delivery.nothing_lost(seen),
    ]


def _partial_batch(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        delivery.deleted_once(seen, messages=_good(seen)),
        delivery.only_bad_return(seen, bad=_poison(seen)),
        effects.effects_once(seen, messages=_good(seen)),
        dead_letters.dead_letters_are(seen, expected=_poison(seen)),
        dead_letters.dead_after(seen, expected=_poison(seen), receives=knobs.receives_max),
    ]


def _side_effects(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        effects.crash_at_every_step(seen, steps=knobs.steps),
        effects.effects_once(seen),
        delivery.all_deleted(seen),
        delivery.deleted_after_effect(seen),
        dead_letters.no_dead_letters(seen),
    ]


def _graceful_shutdown(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        processes.exit_is_zero(seen),
        processes.in_flight_finished(seen, visibility_ms=knobs.visibility_ms),
        processes.rest_not_received(seen),
        processes.rest_remains(seen),
    ]


def _fifo_order(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        order.fifo_order(seen),
        order.no_overlap(seen, visibility_ms=knobs.visibility_ms),
        order.work_shared(seen),
        effects.effects_once(seen),
        delivery.all_deleted(seen),
    ]


def _backpressure(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        bounds.depth_bounded(seen, bound=knobs.depth_bound),
        bounds.equilibrium(seen, threshold=knobs.depth_threshold, ticks=knobs.equilibrium_ticks),
        bounds.consumers_go_down(seen),
        bounds.littles_law(seen),
        delivery.nothing_lost(seen),
    ]


def _purge_timing(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        processes.purged(seen),
        processes.survives_after(seen),
        processes.second_purge_refused(seen, window_ms=knobs.purge_window_ms),
    ]


def _out_of_order(seen: Evidence, _: Knobs) -> list[Check]:
    return [order.highest_wins(seen), order.versions_rise(seen), delivery.all_deleted(seen)]


def _backlog_drain(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        delivery.drained(seen),
        delivery.all_deleted(seen),
        effects.stale_refused(seen, age_ms_max=knobs.stale_ms, tolerance_ms=knobs.tolerance_ms),
        effects.received_twice(seen),
        effects.fresh_once(seen, age_ms_max=knobs.stale_ms, tolerance_ms=knobs.tolerance_ms),
        dead_letters.no_dead_letters(seen),
    ]


def _dlq_redrive(seen: Evidence, _: Knobs) -> list[Check]:
    return [
        dead_letters.moved_back(seen),
        dead_letters.no_dead_letters(seen),
        effects.effects_once(seen),
        delivery.nothing_lost(seen),
    ]


def _double_send(seen: Evidence, _: Knobs) -> list[Check]:
    return [delivery.stored_once(seen), delivery.recovered(seen), delivery.nothing_unexpected(seen)]


def _lost_response(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        leasing.same_messages_again(seen),
        leasing.none_idle(seen, visibility_ms=knobs.visibility_ms),
        effects.effects_once(seen),
        delivery.all_deleted(seen),
    ]


def _lease_theft(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        leasing.stale_reports_refused(seen, visibility_ms=knobs.visibility_ms),
        leasing.leases_exclusive(seen, visibility_ms=knobs.visibility_ms, tolerance_ms=knobs.tolerance_ms),
        effects.effects_once(seen),
    ]


def _noisy_neighbour(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        bounds.quiet_wait(seen, tenant=knobs.quiet_tenant, factor=knobs.wait_factor, floor_ms=knobs.wait_floor_ms),
        delivery.all_deleted(seen),
        delivery.nothing_unexpected(seen),
    ]


def _retry_storm(seen: Evidence, knobs: Knobs) -> list[Check]:
    return [
        bounds.peak_bounded(seen, per_second=knobs.attempts_per_s),
        effects.effects_once(seen),
        delivery.all_deleted(seen),
    ]


SUITES: dict[str, Suite] = {
    "happy": Suite(breaks="all-deleted", check=_happy),
    "crash": Suite(breaks="redelivered", check=_crash),
    "duplicates": Suite(breaks="effects-once", check=_duplicates),
    "business-idempotency": Suite(breaks="one-call-per-order", check=_business_idempotency),
    "poison": Suite(breaks="dead-after", check=_poison_messages),
    "partial-batch": Suite(breaks="only-bad-return", check=_partial_batch),
    "side-effects": Suite(breaks="effects-once", check=_side_effects),
    "graceful-shutdown": Suite(breaks="in-flight-finished", check=_graceful_shutdown),
    "fifo-order": Suite(breaks="fifo-order", check=_fifo_order),
    "backpressure": Suite(breaks="depth-bounded", check=_backpressure),
    "purge-timing": Suite(breaks="survives", check=_purge_timing),
    "out-of-order": Suite(breaks="highest-wins", check=_out_of_order),
    "backlog-drain": Suite(breaks="stale-refused", check=_backlog_drain),
    "dlq-redrive": Suite(breaks="no-dead-letters", check=_dlq_redrive),
    "double-send": Suite(breaks="stored-once", check=_double_send),
    "lost-response": Suite(breaks="same-messages", check=_lost_response),
    "lease-theft": Suite(breaks="stale-report", check=_lease_theft),
    "noisy-neighbour": Suite(breaks="quiet-wait", check=_noisy_neighbour),
    "retry-storm": Suite(breaks="peak-bounded", check=_retry_storm),
}
"""In the order of the documentation."""
