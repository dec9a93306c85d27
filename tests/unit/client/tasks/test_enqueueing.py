"""What callers get when they enqueue, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Call, Penstock, errors


async def test_an_error_in_what_yields_the_calls_is_raised_as_it_is() -> None:
    app = Penstock("memory:")

    @app.task(name="confirm")
    async def confirm(order: int) -> None: ...

    wrong: Any = "seventeen"
    with pytest.raises(errors.ArgumentsInvalid, match="Expected `int`"):
        await app.enqueue_many(confirm.call(order) for order in (1, wrong))

    def broken() -> Iterator[Call[None]]:
        yield confirm.call(1)
        raise TypeError("my own fault")

    with pytest.raises(TypeError, match="my own fault"):
        await app.enqueue_many(broken())


async def test_callers_that_share_a_request_do_not_share_its_error() -> None:
    app = Penstock("http://127.0.0.1:1", timeout=0.2)

    @app.task(name="confirm")
    async def confirm(order: int) -> None: ...

    async with app:
        failed = await asyncio.gather(*(confirm.enqueue(n) for n in range(3)), return_exceptions=True)
    assert [type(error) for error in failed] == [errors.ConnectionFailed] * 3
    assert len({id(error) for error in failed}) == 3
    assert all("127.0.0.1:1" in str(error) for error in failed)
