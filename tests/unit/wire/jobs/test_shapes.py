from __future__ import annotations

from typing import get_args

import msgspec

from penstock.domain.job import JobState
from penstock.domain.job_queue import BreakerPolicy, JobQueueSettings, LaneSettings, Rate
from penstock.domain.job_request import JobRequest
from penstock.domain.retry import RetryPolicy
from penstock.wire.jobs import answers, shapes


def test_every_state_has_its_name_on_the_wire() -> None:
    assert set(get_args(answers.State)) == {state.label for state in JobState} == set(answers.STATES)


def test_the_policy_on_the_wire_has_the_fields_and_defaults_of_the_domain() -> None:
    assert shapes.Retry().policy() == RetryPolicy()
    assert shapes.Breaker() == shapes.Breaker(**msgspec.structs.asdict(BreakerPolicy()))


def test_the_settings_on_the_wire_have_the_fields_of_the_domain() -> None:
    assert shapes.Settings.__struct_fields__ == JobQueueSettings.__struct_fields__
    assert shapes.Settings().over(JobQueueSettings()) == JobQueueSettings()


def test_settings_are_put_over_others() -> None:
    text = b"""{"depth_max": 5, "rate": {"per_second": 2, "burst": 3}, "breaker": {"probes": 2},
        "retry": {"attempts_max": 1}, "lanes": {"api": {"width": 2, "shared": true}}}"""
    given = msgspec.json.decode(text, type=shapes.Settings)
    settings = given.over(JobQueueSettings(strict=True))
    assert settings == JobQueueSettings(
        strict=True,
        depth_max=5,
        rate=Rate(per_second=2, burst=3),
        breaker=BreakerPolicy(probes=2),
        retry=RetryPolicy(attempts_max=1),
        lanes={"api": LaneSettings(width=2, shared=True)},
    )
    without = msgspec.json.decode(b'{"rate": null, "breaker": null}', type=shapes.Settings)
    assert (without.over(settings).rate, without.over(settings).breaker) == (None, None)


def test_a_job_becomes_a_request_with_everything_that_was_asked_for() -> None:
    text = b"""{"queue": "q", "task": "t", "payload": {"a": [1]}, "delay_ms": 5, "priority": 9, "tenant": "x",
        "concurrency": {"key": "k", "width": 3}, "timeout_ms": 7, "retry": {"jitter": false}, "unique_key": "u",
        "tags": ["b", "a"], "idempotency_key": "i"}"""
    job = msgspec.json.decode(text, type=shapes.NewJob)
    assert shapes.job_request(job, trace="trace", correlation_id="c") == JobRequest(
        task="t",
        payload=b'{"a": [1]}',
        delay_ms=5,
        priority=9,
        tenant="x",
        concurrency_key="k",
        concurrency_width=3,
        timeout_ms=7,
        retry=RetryPolicy(jitter=False),
        unique_key="u",
        tags=("b", "a"),
        trace="trace",
        correlation_id="c",
        idempotency_key="i",
    )
