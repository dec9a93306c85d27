"""Callers of the job store that leave before they are answered."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.unit.store.postgres.conftest import OpenNode


async def test_a_refusal_that_nobody_waits_for_is_not_reported(open_node: OpenNode) -> None:
    """It was logged with a traceback once, as if it were a bug."""
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    store = await open_node()
    call = asyncio.create_task(store.jobs.find_queue("missing"))
    await asyncio.sleep(0)  # It has begun, and waits for the database.
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    del call
    await store.close()
    gc.collect()
    assert reported == []
