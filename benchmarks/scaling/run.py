"""`python -m benchmarks scaling`: measures growth along each axis that is asked for."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchmarks.errors import BenchmarkFailed
from benchmarks.http_generator import some_generator
from benchmarks.machine import describe_machine
from benchmarks.process import loop_name
from benchmarks.scaling.axes import grow_backlog, grow_connections, grow_queues, grow_sizes
from benchmarks.scaling.findings import Axis, Flood, Missing, ScalingReport
from benchmarks.scaling.flood import flood
from benchmarks.scaling.nodes import grow_nodes, grow_small_nodes
from benchmarks.scaling.place import Place
from benchmarks.scratch import temporary_folder
from benchmarks.store_run import utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.progress import Narrator
    from benchmarks.scaling.findings import Scope

_GROWTHS = {
    "queues": grow_queues,
    "backlog": grow_backlog,
    "connections": grow_connections,
    "sizes": grow_sizes,
}


async def run_scaling(names: Sequence[str], scope: Scope, narrator: Narrator, *, own: bool = False) -> ScalingReport:
    """Measure these axes. What cannot be measured is told with its reason, and the rest goes on."""
    started_at, axes, missing, flooded = utc_now(), [], [], None
    generator_name = ""
    for name in names:
        with temporary_folder() as folder:
            async with AsyncExitStack() as opened:
                generator = await opened.enter_async_context(some_generator(folder, own=own))
                filler = await opened.enter_async_context(some_generator(folder, own=True))
                generator_name = generator.name
                try:
                    found = await _measure(name, Place(scope, folder, generator, filler, narrator), folder)
                except (BenchmarkFailed, OSError) as failure:
                    narrator.say(f"  {name}: {failure}")
                    missing.append(Missing(name=name, reason=str(failure)))
                    continue
        if isinstance(found, Axis):
            axes.append(found)
        else:
            flooded = found
    return ScalingReport(
        started_at=started_at,
        machine=describe_machine(),
        event_loop=loop_name(),
        generator=generator_name,
        scope=scope,
        axes=axes,
        flood=flooded,
        missing=missing,
    )


async def _measure(name: str, place: Place, folder: Path) -> Axis | Flood:
    if name == "flood":
        return await flood(place)
    if name == "nodes":
        return await grow_nodes(place, folder)
    if name == "small-nodes":
        return await grow_small_nodes(place, folder)
    return await _GROWTHS[name](place)
