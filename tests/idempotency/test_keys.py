"""Keys: unambiguous, within a scope, never too long; and what is no key."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Idempotency, errors
from penstock.client.idempotency.keys import KEY_BYTES_MAX, Template, fingerprint_of, make_key

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["a", "b", "a-b", "a:b", "%", "~", "/", "\x00", "%3A", "-", "--"]
)


@given(st.lists(TEXTS, min_size=1, max_size=3), st.lists(TEXTS, min_size=1, max_size=3))
def test_different_values_have_different_keys(one: Any, other: Any) -> None:
    assert (make_key(("s",), one) == make_key(("s",), other)) == (one == other)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_different_scopes_have_different_keys(one: str, two: str, three: str, four: str) -> None:
    assert (make_key((one, two), "k") == make_key((three, four), "k")) == ((one, two) == (three, four))
    assert make_key((one, two), three) != make_key((one,), (two, three))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_different_arguments_have_different_texts(one: str, two: str, three: str, four: str) -> None:
    made = Template("order-{a}-{b}", lambda a, b: None)
    assert (made(one, two) == made(three, four)) == ((one, two) == (three, four))


def test_keys_can_be_read() -> None:
    assert make_key(("billing", "charges"), (17, "refund")) == "billing/charges:17:refund"
    assert make_key(("",), "a:b") == ":a%3Ab"


def test_a_number_and_its_text_are_the_same_key() -> None:
    assert make_key(("s",), 17) == make_key(("s",), "17")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.50"), "1.50"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29, tzinfo=UTC), "2024-02-29T00%3A00%3A00+00%3A00"),
    ],
)
def test_parts_of_several_types_are_taken(part: Any, text: str) -> None:
    assert make_key(("s",), part) == f"s:{text}"


@pytest.mark.parametrize("part", [None, "", True, 1.5, b"x", {}, object(), ("nested",)])
def test_what_is_no_part_of_a_key_is_refused(part: Any) -> None:
    with pytest.raises(errors.IdempotencyKeyInvalid):
        make_key(("s",), ("a", part))


@pytest.mark.parametrize("key", [(), [], "\ud800"])
def test_what_is_no_key_is_refused(key: Any) -> None:
    with pytest.raises(errors.IdempotencyKeyInvalid):
        make_key(("s",), key)


def test_a_long_key_is_cut_and_has_a_digest() -> None:
    long = [make_key(("scope",), "\u00e4" * 1_000 + end) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(key.encode()) <= KEY_BYTES_MAX and key.startswith("scope:\u00e4\u00e4") for key in long)
    assert make_key(("scope",), long[0].removeprefix("scope:")) != long[0]


def test_fields_of_payloads_make_a_key() -> None:
    key = Idempotency.fields("order_id, customer.id")
    assert key({"order_id": 17, "customer": {"id": "c"}}) == (17, "c")
    assert key(SimpleNamespace(order_id=17, customer={"id": "c"}), "more", named=1) == (17, "c")
    assert Idempotency.fields("order_id", "action")({"order_id": 1, "action": "a"}) == (1, "a")


def test_fields_are_read_from_json_on_the_way() -> None:
    key = Idempotency.fields("body.order_id,id")
    assert key(SimpleNamespace(id="m-1", body='{"order_id": 17}')) == (17, "m-1")
    with pytest.raises(errors.IdempotencyKeyInvalid, match=r"no body\.order_id"):
        key(SimpleNamespace(id="m-1", body="not JSON"))


def test_a_missing_field_is_named() -> None:
    with pytest.raises(errors.IdempotencyKeyInvalid, match=r"The payload has no customer\.id"):
        Idempotency.fields("customer.id")({"customer": {}})


@pytest.mark.parametrize("names", [[], [""], ["a,,b"], ["a."]])
def test_fields_without_names_are_refused(names: list[str]) -> None:
    with pytest.raises(errors.IdempotencyInvalid):
        Idempotency.fields(*names)


def test_templates_take_arguments_however_they_are_given() -> None:
    def handle(message: Any, action: str = "charge", **more: int) -> None: ...

    made = Template("{message[order]}-{action}-{tries}", handle)
    assert made({"order": 17}, tries=1) == "17-charge-1"
    assert made(message={"order": 17}, action="refund", tries=1) == "17-refund-1"
    with pytest.raises(errors.IdempotencyKeyInvalid, match="has no tries"):
        made({"order": 17})
    with pytest.raises(errors.IdempotencyKeyInvalid, match=r"has no message\[order\]"):
        made({}, tries=1)
    with pytest.raises(TypeError, match="message"):
        made()


@pytest.mark.parametrize("template", ["", "constant", "{a}{b}", "{a:>3}", "{a!r}", "{c}", "{a", "{}"])
def test_templates_that_make_no_keys_are_refused(template: str) -> None:
    with pytest.raises(errors.IdempotencyInvalid):
        Template(template, lambda a, b: None)


def test_a_fingerprint_does_not_depend_on_the_order_of_fields() -> None:
    assert fingerprint_of({"a": 1, "b": [2]}) == fingerprint_of({"b": [2], "a": 1})
    assert fingerprint_of({"a": 1}) != fingerprint_of({"a": 2})
    with pytest.raises(errors.IdempotencyKeyInvalid, match="no fingerprint"):
        fingerprint_of(object())
