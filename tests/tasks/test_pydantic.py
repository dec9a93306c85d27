"""Models of pydantic as arguments and results, where pydantic is installed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from penstock import Penstock, Retry, current, errors
from penstock.client.errors import ArgumentsInvalid, ResultInvalid
from penstock.client.tasks.codec import Result, Signature
from tests.tasks.working import PATIENCE_S, working


class Line(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(ge=1)


class Order(pydantic.BaseModel):
    id: int
    lines: list[Line]
    placed_at: datetime
    total: Decimal
    note: str = pydantic.Field(default="", alias="orderNote")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime
    number: int


class Numbers(pydantic.RootModel[list[int]]):
    pass


@dataclass
class Basket:
    orders: dict[str, list[Order]]
    first: Order | None = None


ORDER = Order(
    id=17,
    lines=[Line(sku="tea", count=2)],
    placed_at=datetime(2026, 11, 18, 7, tzinfo=UTC),
    total=Decimal("7.50"),
    orderNote="with milk",
)
STRICT = Strict(at=datetime(2026, 11, 18, tzinfo=UTC), number=5)
LINE = b'{"sku":"tea","count":2}'

VALUES: list[tuple[Any, Any, bytes]] = [
    (Line, Line(sku="tea", count=2), LINE),
    (list[Line], [Line(sku="tea", count=2)], b"[%b]" % LINE),
    (dict[str, Line], {"a": Line(sku="tea", count=2)}, b'{"a":%b}' % LINE),
    (Line | None, None, b"null"),
    (
        Order,
        ORDER,
        b'{"id":17,"lines":[%b],"placed_at":"2026-11-18T07:00:00Z","total":"7.50","orderNote":"with milk"}' % LINE,
    ),
    (Strict, STRICT, b'{"at":"2026-11-18T00:00:00Z","number":5}'),
    (Numbers, Numbers([1, 2]), b"[1,2]"),
]


@pytest.mark.parametrize(("kind", "value", "written"), VALUES)
def test_a_model_is_written_as_pydantic_writes_it_and_comes_back(kind: Any, value: Any, written: bytes) -> None:
    result = Result("work", kind)
    assert result.encode(value) == written
    assert result.decode(written) == value


async def test_models_are_arguments_and_results(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work(order: Order, basket: Basket, *, strict: Strict) -> Basket:
        assert isinstance(order, Order)
        assert isinstance(basket.orders["a"][0].lines[0], Line)
        assert strict == STRICT
        return Basket({"b": [order]}, first=basket.orders["a"][0])

    @app.task(name=f"{name}-steps", queue=name, retry=Retry(2, backoff=0))
    async def steps() -> Order:
        def order() -> Order:
            return ORDER

        found = await current().step("order", order)
        if current().attempt == 1:
            raise RuntimeError("after the step")
        return found

    async with working(app):
        job = await work.enqueue(ORDER, Basket({"a": [ORDER]}), strict=STRICT)
        assert await job.result(PATIENCE_S) == Basket({"b": [ORDER]}, first=ORDER)
        assert await (await steps.enqueue()).result(PATIENCE_S) == ORDER


async def test_what_pydantic_rejects_is_refused_before_it_is_sent(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work(line: Line) -> int:
        return line.count

    invalid = Line.model_construct(sku="tea", count=0)
    with pytest.raises(ArgumentsInvalid, match=r"(?s)count.*greater than or equal to 1"):
        await work.enqueue(invalid)
    wrong: Any = {"sku": "tea"}
    with pytest.raises(ArgumentsInvalid, match=r"(?s)count.*Field required"):
        await work.enqueue(wrong)
    with pytest.raises(errors.QueueNotFound):  # Not even its queue was made.
        await app.jobs.list(queue=name)


async def test_a_payload_that_pydantic_rejects_makes_the_job_dead(app: Penstock, name: str) -> None:
    @app.task(name=name, queue=name)
    async def work(line: Line) -> int:
        return line.count

    @app.task(name=f"{name}-result", queue=name)
    async def result() -> Line:
        return Line.model_construct(sku="tea", count=0)

    stored = await app.jobs.enqueue(name, name, {"line": {"sku": "tea", "count": 0}})
    async with working(app):
        with pytest.raises(errors.JobDead, match=r"(?s)ArgumentsInvalid.*greater than or equal to 1"):
            await work.job(stored.id).result(PATIENCE_S)
        with pytest.raises(errors.JobDead, match=r"(?s)ResultInvalid.*greater than or equal to 1"):
            await (await result.enqueue()).result(PATIENCE_S)
        assert (await app.jobs.get(stored.id)).attempts == 1


def test_nan_in_a_model_is_refused() -> None:
    class Price(pydantic.BaseModel):
        net: float | None

    with pytest.raises(ResultInvalid, match="neither NaN"):
        Result("work", Price).encode(Price(net=float("nan")))


def test_a_class_of_a_model_is_no_model() -> None:
    def work(it: Any) -> None: ...

    with pytest.raises(ArgumentsInvalid, match="cannot be written as JSON"):
        Signature("work", work).encode((Line,), {})
