"""Arguments and results as JSON: tables of values and the exact bytes that stand for them."""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from penstock.client.errors import ArgumentsInvalid, ResultInvalid, TaskInvalid
from penstock.client.tasks.codec import Result, Signature, check_parameters, encode_value


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Point(NamedTuple):
    x: int
    y: int


class Address(TypedDict, total=False):
    city: str


@dataclass
class Line:
    sku: str
    tags: list[str] = field(default_factory=list)


class Order(msgspec.Struct, tag=True):
    id: int
    line: Line | None = None


class Unknown:
    pass


VALUES: list[tuple[Any, Any, bytes]] = [
    (Any, None, b"null"),
    (Any, [1, "a", {"b": None}], b'[1,"a",{"b":null}]'),
    (bool, True, b"true"),
    (int, -17, b"-17"),
    (int, 2**63, b"9223372036854775808"),
    (int, 2**70, b"1180591620717411303424"),
    (float, 1.5, b"1.5"),
    (float, 1e300, b"1e300"),
    (str, 'é"\n\x00', '"é\\"\\n\\u0000"'.encode()),
    (bytes, b"\x00\xff", b'"AP8="'),
    (datetime, datetime(2026, 11, 18, 7, tzinfo=UTC), b'"2026-11-18T07:00:00Z"'),
    (datetime, datetime(2026, 11, 18, 7), b'"2026-11-18T07:00:00"'),  # noqa: DTZ001 - it stays without a zone
    (date, date(2026, 11, 18), b'"2026-11-18"'),
    (timedelta, timedelta(hours=1, seconds=2.5), b'"PT3602.5S"'),
    (Decimal, Decimal("7.50"), b'"7.50"'),
    (UUID, UUID(int=5), b'"00000000-0000-0000-0000-000000000005"'),
    (Colour, Colour.RED, b'"red"'),
    (Size, Size.LARGE, b"3"),
    (Literal["a", "b"], "b", b'"b"'),
    (Point, Point(1, 2), b"[1,2]"),
    (Address, {"city": "Berlin"}, b'{"city":"Berlin"}'),
    (Line, Line("espresso", ["hot"]), b'{"sku":"espresso","tags":["hot"]}'),
    (Order, Order(17), b'{"type":"Order","id":17,"line":null}'),
    (Order | None, Order(17, Line("tea")), b'{"type":"Order","id":17,"line":{"sku":"tea","tags":[]}}'),
    (dict[int, list[Line]], {7: [Line("tea")]}, b'{"7":[{"sku":"tea","tags":[]}]}'),
    (tuple[int, str], (1, "a"), b'[1,"a"]'),
    (set[int], {5}, b"[5]"),
    (frozenset[str], frozenset({"a"}), b'["a"]'),
]


@pytest.mark.parametrize(("kind", "value", "written"), VALUES)
def test_a_value_is_written_as_these_bytes_and_comes_back(kind: Any, value: Any, written: bytes) -> None:
    result = Result("work", kind)
    assert result.encode(value) == written
    back = result.decode(written)
    assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize(("kind", "value", "written"), VALUES)
def test_an_argument_is_written_under_its_name(kind: Any, value: Any, written: bytes) -> None:
    def work(it: Any) -> None: ...

    work.__annotations__ = {"it": kind}
    signature = Signature("work", work)
    assert signature.encode((value,), {}) == b'{"it":%b}' % written
    assert signature.encode((), {"it": value}) == b'{"it":%b}' % written
    assert signature.decode(b'{"it":%b}' % written) == ((value,), {})


def plain(a: int, b: str = "x") -> None: ...
def strict(a: int, /, b: int = 2, *, c: int, d: int = 4) -> None: ...
def nothing() -> None: ...


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], bytes, tuple[Any, Any]]] = [
    (plain, (1,), {}, b'{"a":1}', ((1,), {})),
    (plain, (1, "y"), {}, b'{"a":1,"b":"y"}', ((1, "y"), {})),
    (plain, (), {"b": "y", "a": 1}, b'{"a":1,"b":"y"}', ((1, "y"), {})),
    (strict, (1,), {"c": 3}, b'{"a":1,"c":3}', ((1,), {"c": 3})),
    (strict, (1, 5), {"c": 3, "d": 9}, b'{"a":1,"b":5,"c":3,"d":9}', ((1, 5), {"c": 3, "d": 9})),
    (nothing, (), {}, b"{}", ((), {})),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "payload", "decoded"), CALLS)
def test_a_call_is_an_object_by_name_without_defaults(
    function: Callable[..., Any], args: Any, kwargs: Any, payload: bytes, decoded: tuple[Any, Any]
) -> None:
    signature = Signature("work", function)
    assert signature.encode(args, kwargs) == payload
    assert signature.decode(payload) == decoded
    inspect.signature(function).bind(*decoded[0], **decoded[1])


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "said"),
    [
        (plain, (), {}, "missing a required argument: 'a'"),
        (plain, (1, "y", 3), {}, "too many positional arguments"),
        (plain, (1,), {"e": 3}, "unexpected keyword argument 'e'"),
        (plain, (1,), {"a": 3}, "multiple values for argument 'a'"),
        (plain, ("1",), {}, r"Expected `int`, got `str` - at `\$.a`"),
        (plain, (1.5,), {}, r"Expected `int`, got `float` - at `\$.a`"),
        (plain, (True,), {}, r"Expected `int`, got `bool` - at `\$.a`"),
        (plain, (None,), {}, r"Expected `int`, got `null` - at `\$.a`"),
        (strict, (), {"a": 1, "c": 3}, "positional.only"),
        (strict, (1, 2, 3), {}, "too many positional arguments"),
        (strict, (1,), {}, "missing a required( keyword-only)? argument: 'c'"),
        (strict, (1,), {"c": object()}, "Argument c of task work cannot be sent: a value of the type object"),
        (nothing, (1,), {}, "too many positional arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(function: Callable[..., Any], args: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(ArgumentsInvalid, match=said) as caught:
        Signature("work", function).encode(args, kwargs)
    assert "work" in str(caught.value)


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Unknown(), "a value of the type Unknown cannot be written as JSON"),
        (Unknown, "a value of the type type cannot"),
        ({Unknown()}, "a value of the type Unknown cannot"),
        ([{"a": Unknown()}], "a value of the type Unknown cannot"),
        (lambda: None, "a value of the type function cannot"),
        (1j, "a value of the type complex cannot"),
        ({(1, 2): 3}, "a value of the type tuple cannot"),
        (ValueError("x"), "a value of the type ValueError cannot"),
        ("\ud800", "surrogates not allowed"),
        (nested(100_000), "recursion"),
        (math.nan, "JSON has neither NaN nor infinity"),
        (-math.inf, "JSON has neither NaN nor infinity"),
        ({"a": [None, (1.0, {math.inf})]}, "JSON has neither NaN nor infinity"),
        (Order(1, Line("x", [math.nan])), "JSON has neither NaN nor infinity"),  # type: ignore[list-item]
    ],
)
def test_what_json_cannot_hold_is_refused_by_the_name_of_its_argument(value: Any, said: str) -> None:
    def work(first: Any, second: Any) -> Any: ...

    with pytest.raises(ArgumentsInvalid, match=f"Argument second of task work cannot be sent: .*{said}"):
        Signature("work", work).encode((1, value), {})
    with pytest.raises(ResultInvalid, match=said):
        Result("work", Any).encode(value)


def test_nan_does_not_become_none_where_none_is_allowed() -> None:
    with pytest.raises(ResultInvalid, match="neither NaN"):
        Result("work", float | None).encode(math.nan)
    assert Result("work", float | None).encode(None) == b"null"
    assert encode_value(["null", None]) == b'["null",null]'


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (int, "5", "Expected `int`, got `str`"),
        (list[int], [1, "2"], r"Expected `int`, got `str` - at `\$\[1\]`"),
        (None, 5, "Expected `null`, got `int`"),
        (Colour, "green", "Invalid enum value 'green'"),
    ],
)
def test_a_result_of_another_type_than_annotated_is_refused(kind: Any, value: Any, said: str) -> None:
    with pytest.raises(ResultInvalid, match=said):
        Result("work", kind).encode(value)
    with pytest.raises(ResultInvalid, match=said):
        Result("work", kind).decode(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"a":1,"z":1}', "unknown field `z`"),
        (b"{}", "missing required field `a`"),
        (b'{"a":1,"b":"\xff"}', "codec can't decode"),
        (b'{"a":' + b"[" * 100_000, "recursion|Expected `int`"),
    ],
)
def test_a_payload_that_somebody_else_made_wrong_is_refused(payload: bytes, said: str) -> None:
    with pytest.raises(ArgumentsInvalid, match=said):
        Signature("work", plain).decode(payload)


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ("Nowhere", "does not have at run time: name 'Nowhere' is not defined"),
        ("enum.Nowhere", "does not have at run time"),
        ("1 +", "are no types"),
        ("Unknown", "has the type Unknown, which JSON cannot hold"),
        ("list[dict[str, Unknown]]", "has the type Unknown, which JSON cannot hold"),
        ("Callable[[], int]", "has the type Callable, which JSON cannot hold"),
        ("list[int] | tuple[int]", "cannot be read from JSON"),
    ],
)
def test_a_type_that_cannot_be_read_is_refused(annotation: str, said: str) -> None:
    def work(it: Any) -> Any: ...

    work.__annotations__ = {"it": annotation}
    with pytest.raises(TaskInvalid, match=said):
        Signature("work", work)
    work.__annotations__ = {"return": annotation}
    with pytest.raises(TaskInvalid, match=said.replace("has the type", "returns the type")):
        Result.of("work", work)


def test_parameters_have_names() -> None:
    def many(*numbers: int) -> None: ...
    def any_name(**numbers: int) -> None: ...

    with pytest.raises(TaskInvalid, match=r"has a parameter \*numbers: 'int'. Arguments are sent by name"):
        check_parameters("work", many)
    with pytest.raises(TaskInvalid, match=r"has a parameter \*\*numbers"):
        check_parameters("work", any_name)
