"""The stores' jobs against the model: the same random lives, on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.conftest import Place
from tests.simulation.job_upkeep import TendedJobMachine
from tests.simulation.profiles import QUICK

EXAMPLES = 20
EXAMPLES_ON_POSTGRES = 4


def machine(place: Place) -> type[TendedJobMachine]:
    return type("JobMachine", (TendedJobMachine,), {"place": staticmethod(place)})


@pytest.mark.timeout(400)  # It takes a few seconds; a failure takes minutes to be made small.
def test_jobs_agree_with_the_model(request: pytest.FixtureRequest, place: Place) -> None:
    # Where each step is a conversation with a server, fewer of them.
    examples = EXAMPLES_ON_POSTGRES if "postgres" in request.node.name else EXAMPLES
    run_state_machine_as_test(machine(place), settings=settings(QUICK, max_examples=examples))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_jobs_agree_with_the_model_over_longer_lives(place: Place, deep: settings) -> None:
    run_state_machine_as_test(machine(place), settings=deep)
