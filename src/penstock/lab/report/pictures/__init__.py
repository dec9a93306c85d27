"""Pictures: how each kind is drawn, large in a report and small in the index."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.lab.report.pictures import bars, curves, flows, grids, lanes, points

if TYPE_CHECKING:
    from penstock.lab.report.scene import Drawing, Scene
    from penstock.lab.run import Picture


class Draw(Protocol):
    """Draws one variant. A thumbnail is one strip without a legend."""

    def __call__(self, scene: Scene, *, thumb: bool) -> Drawing: ...


DRAWN: dict[Picture, Draw] = {
    "lanes": partial(lanes.draw, gaps=True),
    "crash-lane": partial(lanes.draw, gaps=True),
    "late-lanes": partial(lanes.draw, aligned=True),
    "joined-lanes": partial(lanes.draw, join=True),
    "receive-counts": bars.receive_counts,
    "round-grid": grids.round_grid,
    "step-ladder": grids.step_ladder,
    "signal-lanes": partial(lanes.draw, signal=True),
    "sequence-points": points.sequence_points,
    "load-curves": curves.load_curves,
    "survival": points.survival,
    "versions": points.versions,
    "backlog-curves": curves.backlog_curves,
    "queue-flow": flows.queue_flow,
    "send-wire": flows.send_wire,
    "receive-wire": flows.receive_wire,
    "two-holders": lanes.draw,
    "tenant-waits": bars.tenant_waits,
    "retry-rate": bars.retry_rate,
}
"""`lanes` lays out leases that overlap, crash or are stolen by itself."""
