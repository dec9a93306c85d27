"""The machine of jobs, together with what is done to many of them at once: purged, requeued, swept, held back."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from penstock.domain.job import TERMINAL, WAITING, JobState
from penstock.domain.operation import JobFilter, OperationKind, OperationState
from tests.simulation.job_machine import JobMachine, names

STEPS_MAX = 100
"""So many steps end every operation and every sweep of these few jobs."""

filters = st.sampled_from(
    (
        JobFilter(),
        JobFilter(),
        JobFilter(tenant=""),
        JobFilter(states=(JobState.SCHEDULED, JobState.RETRYING, JobState.DEAD)),
        JobFilter(failure_kind="x"),
    )
)


class TendedJobMachine(JobMachine):
    """As its parent, with somebody who tends the queues."""

    operations = 0

    @precondition(lambda self: self.those_in(WAITING))
    @rule(name=names, wanted=filters)
    def purge(self, name: str, wanted: JobFilter) -> None:
        self.operate(name, OperationKind.PURGE, wanted)

    @precondition(lambda self: self.those_in(frozenset({JobState.DEAD})))
    @rule(name=names, wanted=filters)
    def requeue(self, name: str, wanted: JobFilter) -> None:
        self.operate(name, OperationKind.REQUEUE, wanted)

    def operate(self, name: str, kind: OperationKind, wanted: JobFilter) -> None:
        queue = self.queues[name]
        self.operations += 1
        operation_id = f"operation-{self.operations}"
        self.run(self.jobs.start_operation(operation_id, kind, queue, wanted, None))
        wanted = msgspec.structs.replace(wanted, queue=name)
        number = self.model.purge(wanted) if kind is OperationKind.PURGE else self.model.requeue(wanted)
        for _ in range(STEPS_MAX):
            if self.run(self.jobs.advance_operations()) is None:
                break
        operation = self.run(self.jobs.operation(operation_id))
        assert (operation.state, operation.done) == (OperationState.DONE, number)

    @precondition(lambda self: self.those_in(TERMINAL))
    @rule()
    def sweep(self) -> None:
        for _ in range(STEPS_MAX):
            if not self.run(self.jobs.sweep()):
                break
        else:
            raise AssertionError("there is always more to sweep")
        self.model.sweep()

    @precondition(lambda self: self.those_in(WAITING))
    @rule(name=names, paused=st.booleans())
    def hold_back(self, name: str, paused: bool) -> None:
        self.pause(name, paused=paused)

    def pause(self, name: str, *, paused: bool) -> None:
        saved = self.run(self.jobs.save_queue(self.queues[name], paused=paused))
        assert saved is not None
        self.queues[name] = saved

    @rule()
    def everything_ends(self) -> None:
        for name in self.queues:
            self.pause(name, paused=False)
        super().everything_ends()
