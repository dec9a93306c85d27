"""Checkers: pure functions from what a run left behind to a verdict with its smallest witness.

Each takes an `Evidence` and returns a `Check`. What was not seen is `unknown`, never held: a run in which no lease ran
out says nothing about leases that run out. `suites` has the checks of each scenario.
"""
