"""How long simulations run: the same every time, so that a failure is one for everybody; or, to explore, at random."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support.campaigns import GATHERING_EVIDENCE
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

DEEP = settings(QUICK, max_examples=100 if GATHERING_EVIDENCE else 40, stateful_step_count=60)
"""What decides whether a change is good: some of it before every merge, all of it in `make evidence`."""

DEEP_ON_POSTGRES = settings(DEEP, max_examples=40 if GATHERING_EVIDENCE else 20)
"""The same lives from the first on, but fewer of them: each step is a conversation with a server."""
