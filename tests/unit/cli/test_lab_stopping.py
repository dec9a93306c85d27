"""Signals that stop a command of the lab: the first one ends the work, and none but Ctrl+C the clean-up."""

from __future__ import annotations

import signal

import pytest

from penstock.cli.lab.stopping import Stopped, say_stopped, stoppable


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_a_second_ctrl_c_interrupts_the_clean_up(
    first: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with stoppable():
        with pytest.raises(Stopped) as stopped:
            signal.raise_signal(first)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert say_stopped(stopped.value) == 128 + first
    assert capsys.readouterr().err == "Stopped.\n"
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
