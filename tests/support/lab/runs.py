"""Runs of all nineteen scenarios from histories written by hand, judged by the checkers and ready to be reported."""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec

from penstock.lab.checkers.suites import SUITES, Knobs
from penstock.lab.history import Event
from penstock.lab.run import PICTURES, KnobRow, Run, Variant
from tests.support.lab import fast, slow
from tests.support.lab.script import LEASE_MS, Script

HOSTILE = """</title></style><script>window.hacked = 1</script><img src=x onerror="window.hacked=1">'&{}`"""
STARTED_MS = 1_795_000_000_000
WRITTEN: dict[str, Callable[[Script], None]] = {
    "happy": fast.happy,
    "crash": fast.crash,
    "duplicates": fast.duplicates,
    "business-idempotency": fast.business_idempotency,
    "poison": fast.poison,
    "partial-batch": fast.partial_batch,
    "side-effects": fast.side_effects,
    "graceful-shutdown": fast.graceful_shutdown,
    "fifo-order": fast.fifo_order,
    "backpressure": slow.backpressure,
    "purge-timing": slow.purge_timing,
    "out-of-order": slow.out_of_order,
    "backlog-drain": slow.backlog_drain,
    "dlq-redrive": slow.dlq_redrive,
    "double-send": slow.double_send,
    "lost-response": slow.lost_response,
    "lease-theft": slow.lease_theft,
    "noisy-neighbour": slow.noisy_neighbour,
    "retry-storm": slow.retry_storm,
}
_TEXTS = ("process", "queue", "message_id", "body_id", "receipt", "fault", "call", "key", "group", "tenant", "entity")
LEASES_MS = {"happy": 2_000, "duplicates": 2_000, "lost-response": 30_000, "lease-theft": 2_000}
STORIES = {
    "duplicates": "The work took longer than its lease, so each of 5 messages was received twice. Both "
    "consumers looked, "
    "and both saw nothing on record; only the conditional write stopped the second call.",
    "crash": "A consumer died while it held the message. Nobody else could see it until the lease ran out; "
    "then another got it.",
}
RULES = {
    "duplicates": "At least two receives, exactly one call.",
    "crash": "Redelivered after the visibility timeout, never before; one effect.",
}


def knobs_of(scenario: str) -> Knobs:
    return Knobs(
        visibility_ms=LEASES_MS.get(scenario, LEASE_MS),
        stale_ms=20_000,
        depth_bound=40,
        attempts_per_s=50,
    )


def script_of(scenario: str, *, broken: bool = False) -> Script:
    script = Script(scenario, "broken" if broken else "protected", lease_ms=LEASES_MS.get(scenario, LEASE_MS))
    WRITTEN[scenario](script)
    return script


def variant_of(scenario: str, *, broken: bool = False) -> Variant:
    script = script_of(scenario, broken=broken)
    checks = tuple(SUITES[scenario].check(script.evidence, knobs_of(scenario)))
    bad = [check for check in checks if check.verdict == "failed"]
    return Variant(
        name="broken" if broken else "protected",
        setting="protection off" if broken else "protection on",
        summary=f"{(bad or checks)[0].sentence}.",
        history=script.history,
        checks=checks,
        history_file=f"{scenario}-7-{'broken' if broken else 'protected'}.jsonl",
    )


@functools.cache
def run_of(scenario: str) -> Run:
    knobs = knobs_of(scenario)
    protected = variant_of(scenario)
    return Run(
        scenario=scenario,
        rule=RULES.get(scenario, f"{protected.checks[0].rule}."),
        found=protected.checks[0].sentence,
        story=STORIES.get(scenario, f"{protected.checks[0].rule}: {protected.checks[0].sentence}."),
        protected=protected,
        broken=variant_of(scenario, broken=True),
        breaks=SUITES[scenario].breaks,
        picture=PICTURES[scenario],
        limits={
            "visibility_ms": knobs.visibility_ms,
            "receives_max": knobs.receives_max,
            "depth_bound": knobs.depth_bound,
            "depth_threshold": knobs.depth_threshold,
            "purge_window_ms": knobs.purge_window_ms,
            "stale_ms": knobs.stale_ms,
            "wait_factor": knobs.wait_factor,
            "attempts_per_s": knobs.attempts_per_s,
        },
        knobs=(
            KnobRow(name="PROTECTION", protected="on", broken="off", does="what makes the difference"),
            KnobRow(
                name="VISIBILITY_TIMEOUT",
                protected=f"{knobs.visibility_ms // 1_000} s",
                broken=f"{knobs.visibility_ms // 1_000} s",
                does="how long a lease lasts",
            ),
            KnobRow(name="count", protected="5", broken="5", does="messages sent"),
            KnobRow(name="seed", protected="7", broken="7", does="the same seed gives the same faults"),
        ),
        commands=(f"penstock lab run {scenario} --seed 7", f"penstock lab run {scenario} --seed 7 --broken"),
        try_this=(
            "set `VISIBILITY_TIMEOUT=4`. The lease then outlasts the work, nothing is received twice, and the "
            "verdict is unknown."
        ),
        guide="A queue delivers at least once. What must happen once is up to you.",
        endpoint="this server",
        backend="penstock 0.9.0 on SQLite, manual clock",
        versions={"penstock": "0.9.0", "python": "3.13.1"},
        difference="Penstock never gives a message to two consumers within the visibility timeout. Amazon SQS may.",
        seed=7,
        started_ms=STARTED_MS,
        duration_ms=1_200,
    )


def hostile_run(scenario: str = "duplicates") -> Run:
    """Return a run in which every text that can come from outside is markup."""
    run = run_of(scenario)

    def bad(event: Event) -> Event:
        renamed = {name: f"{HOSTILE}{value}" for name in _TEXTS if (value := getattr(event, name)) is not None}
        return msgspec.structs.replace(event, **renamed, what=HOSTILE)

    def bad_variant(variant: Variant) -> Variant:
        history = msgspec.structs.replace(variant.history, events=tuple(bad(event) for event in variant.history.events))
        checks = tuple(
            msgspec.structs.replace(
                check,
                rule=HOSTILE,
                figure=HOSTILE,
                sentence=HOSTILE,
                message=f"{HOSTILE}{check.message}" if check.message else None,
            )
            for check in variant.checks
        )
        return msgspec.structs.replace(
            variant, history=history, checks=checks, setting=HOSTILE, summary=HOSTILE, history_file=HOSTILE
        )

    assert run.broken is not None
    return msgspec.structs.replace(
        run,
        scenario=HOSTILE,
        rule=HOSTILE,
        found=HOSTILE,
        story=HOSTILE,
        protected=bad_variant(run.protected),
        broken=bad_variant(run.broken),
        knobs=(KnobRow(name=HOSTILE, protected=HOSTILE, broken="off", does=HOSTILE),),
        commands=(HOSTILE,),
        try_this=HOSTILE,
        guide=HOSTILE,
        endpoint=HOSTILE,
        backend=HOSTILE,
        versions={HOSTILE: HOSTILE},
        difference=HOSTILE,
    )
