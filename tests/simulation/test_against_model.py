"""The stores against the model: the same random lives of four queues, on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.conftest import Place
from tests.simulation.machine import StoreMachine
from tests.simulation.profiles import QUICK

EXAMPLES = 40
EXAMPLES_ON_POSTGRES = 16


def machine(place: Place) -> type[StoreMachine]:
    return type("StoreMachine", (StoreMachine,), {"place": staticmethod(place)})


@pytest.mark.timeout(900)  # It takes a few seconds; a failure takes minutes to be made small.
def test_store_agrees_with_the_model(request: pytest.FixtureRequest, place: Place) -> None:
    # Where each step is a conversation with a server, fewer of them.
    examples = EXAMPLES_ON_POSTGRES if "postgres" in request.node.name else EXAMPLES
    run_state_machine_as_test(machine(place), settings=settings(QUICK, max_examples=examples))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_store_agrees_with_the_model_over_longer_lives(place: Place, deep: settings) -> None:
    run_state_machine_as_test(machine(place), settings=deep)
