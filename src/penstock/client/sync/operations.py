# Made of penstock/client/verbs by scripts/make_sync.py. Change that, and run the script.
"""Operations on many jobs: purges and requeues, and how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.calls import Call
from penstock.client.reading import reader, segment
from penstock.wire.jobs.answers import Operations as OperationList
from penstock.wire.jobs.answers import OperationView

if TYPE_CHECKING:
    from penstock.client.sync.caller import Caller

_read_operation = reader(OperationView)
_read_list = reader(OperationList)


class Operations:
    """Operations, by id."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def get(self, operation_id: str, *, timeout: float | None = None) -> OperationView:
        """Return an operation and how far it is; raises `OperationNotFound`."""
        path = f"/v1/operations/{segment(operation_id)}"
        return self._caller.perform(Call("GET", path, _read_operation), timeout)

    def list(self, queue: str, *, timeout: float | None = None) -> OperationList:
        """Return the operations of a queue, the newest first."""
        return self._caller.perform(Call("GET", f"/v1/queues/{segment(queue)}/operations", _read_list), timeout)

    def cancel(self, operation_id: str, *, timeout: float | None = None) -> OperationView:
        """Stop an operation. What it has done stays done."""
        path = f"/v1/operations/{segment(operation_id)}/cancel"
        return self._caller.perform(Call("POST", path, _read_operation), timeout)
