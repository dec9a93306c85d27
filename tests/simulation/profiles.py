"""How long simulations run: the same every time, so that a failure is one for everybody; or, to explore, at random."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support.exploring import EXPLORING

QUICK = settings(
    max_examples=40,
    stateful_step_count=40,
    derandomize=not EXPLORING,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
"""A look at each machine for `make test-fast`: some seconds."""

DEEP = settings(QUICK, max_examples=60, stateful_step_count=60)
"""What decides whether a change is good; always run before a merge."""

DEEP_ON_POSTGRES = settings(DEEP, max_examples=30)
"""The same lives from the first on, but fewer of them: each step is a conversation with a server."""
