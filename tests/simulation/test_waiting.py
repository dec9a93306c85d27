"""Long polls at random: each ends as soon as there is a message for it, in the order of arrival, or at its deadline."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.conftest import Place
from tests.simulation.profiles import QUICK
from tests.simulation.waiting import WaitingMachine


def machine(place: Place) -> type[WaitingMachine]:
    return type("WaitingMachine", (WaitingMachine,), {"place": staticmethod(place)})


@pytest.mark.timeout(900)  # It takes a few seconds; a failure takes minutes to be made small.
def test_no_poll_waits_while_there_is_a_message_for_it(place: Place) -> None:
    run_state_machine_as_test(machine(place), settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_no_poll_waits_while_there_is_a_message_for_it_over_longer_lives(place: Place, deep: settings) -> None:
    run_state_machine_as_test(machine(place), settings=deep)
