"""How long simulations run: the same every time, so that a failure is one for everybody."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK = settings(
    max_examples=40,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
DEEP = settings(QUICK, max_examples=100, stateful_step_count=60)
