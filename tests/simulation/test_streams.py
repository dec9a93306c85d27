"""Streams at random: one holder for each job, and nothing for workers that are silent, whoever gives back what when."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.conftest import Place
from tests.simulation.profiles import QUICK
from tests.simulation.stream_machine import StreamMachine

EXAMPLES = 10
EXAMPLES_ON_POSTGRES = 4


def machine(place: Place) -> type[StreamMachine]:
    return type("StreamMachine", (StreamMachine,), {"place": staticmethod(place)})


@pytest.mark.timeout(400)  # It takes a few seconds; a failure takes minutes to be made small.
def test_a_job_has_one_holder_and_silent_streams_get_nothing(request: pytest.FixtureRequest, place: Place) -> None:
    examples = EXAMPLES_ON_POSTGRES if "postgres" in request.node.name else EXAMPLES
    run_state_machine_as_test(machine(place), settings=settings(QUICK, max_examples=examples))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_has_one_holder_and_silent_streams_get_nothing_over_longer_lives(place: Place, deep: settings) -> None:
    run_state_machine_as_test(machine(place), settings=deep)
