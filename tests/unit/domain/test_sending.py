"""What a queue accepts, and why it refuses the rest."""

import hashlib
from typing import Any

import pytest

from penstock.domain.errors import (
    BatchEmpty,
    BatchEntryIdInvalid,
    BatchEntryIdsNotDistinct,
    BatchTooManyEntries,
    DeduplicationIdMissing,
    InvalidMessageContents,
    InvalidParameter,
    MessageTooLong,
    MissingParameter,
    PenstockError,
)
from penstock.domain.limits import Limits
from penstock.domain.message import Attribute, Draft, receives_served, size_bytes
from penstock.domain.queue import Queue, QueueAttributes, QueueName
from penstock.domain.sending import Outgoing, accept, check_entry_ids

LIMITS = Limits()


def queue(name: str = "orders", **attributes: Any) -> Queue:
    return Queue(
        id=1,
        name=QueueName("us-east-1", "000000000000", name),
        attributes=QueueAttributes(**attributes),
        tags={},
        created_at_ms=0,
        modified_at_ms=0,
        revision=1,
    )


def accepted(target: Queue, **outgoing: Any) -> Draft:
    return accept(target, Outgoing(**{"body": "hello", **outgoing}), message_id="m", sender="s", limits=LIMITS)


@pytest.mark.parametrize("body", ["\t\n\r ", "\ud7ff\ue000\ufffd", "\U00010000\U0010ffff", "é" * 10])
def test_every_character_of_xml_is_allowed(body: str) -> None:
    assert accepted(queue(), body=body).body == body


@pytest.mark.parametrize("character", ["\x00", "\x08", "\x0b", "\x1f", "\ufffe", "\uffff", "\ud800"])
def test_other_characters_are_refused(character: str) -> None:
    with pytest.raises(InvalidMessageContents):
        accepted(queue(), body=f"a{character}b")


def test_an_empty_body_is_refused() -> None:
    with pytest.raises(InvalidParameter):
        accepted(queue(), body="")


def test_size_counts_bytes_of_body_names_types_and_values() -> None:
    attributes = {"n": Attribute("String.x", "é"), "b": Attribute("Binary", b"123")}
    assert size_bytes("é", attributes) == 2 + (1 + 8 + 2) + (1 + 6 + 3)


def test_a_message_may_be_just_as_large_as_its_queue_says() -> None:
    small = queue(maximum_message_bytes=1_024)
    accepted(small, body="x" * 1_024)
    for too_long in ({"body": "x" * 1_025}, {"body": "x" * 1_020, "attributes": {"a": Attribute("String", "b")}}):
        with pytest.raises(MessageTooLong):
            accepted(small, **too_long)


def test_the_queues_delay_stands_in_for_the_messages() -> None:
    assert accepted(queue(delay_s=5)).delay_ms == 5_000
    assert accepted(queue(delay_s=5), delay_s=0).delay_ms == 0
    assert accepted(queue(), delay_s=900).delay_ms == 900_000


@pytest.mark.parametrize("delay_s", [-1, 901])
def test_a_delay_beyond_its_range_is_refused(delay_s: int) -> None:
    with pytest.raises(InvalidParameter):
        accepted(queue(), delay_s=delay_s)


def test_a_fifo_queue_refuses_a_delay_of_the_message_alone() -> None:
    fifo = queue("orders.fifo", delay_s=5)
    assert accepted(fifo, group="g", deduplication_id="d").delay_ms == 5_000
    with pytest.raises(InvalidParameter):
        accepted(fifo, group="g", deduplication_id="d", delay_s=1)


def test_a_fifo_message_needs_a_group_and_something_to_tell_it_apart() -> None:
    fifo = queue("orders.fifo")
    with pytest.raises(MissingParameter):
        accepted(fifo, deduplication_id="d")
    with pytest.raises(DeduplicationIdMissing):
        accepted(fifo, group="g")


def test_content_based_deduplication_takes_the_bodys_digest_unless_an_id_is_given() -> None:
    fifo = queue("orders.fifo", content_based_deduplication=True)
    assert accepted(fifo, group="g").deduplication_id == hashlib.sha256(b"hello").hexdigest()
    assert accepted(fifo, group="g", deduplication_id="mine").deduplication_id == "mine"


def test_a_standard_queue_takes_a_group_but_no_deduplication_id() -> None:
    assert accepted(queue(), group="tenant").group == "tenant"
    with pytest.raises(InvalidParameter):
        accepted(queue(), deduplication_id="d")


@pytest.mark.parametrize("token", ["", "x" * 129, "a b", "é", "a\n"])
def test_groups_are_short_and_printable(token: str) -> None:
    with pytest.raises(InvalidParameter):
        accepted(queue(), group=token)


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("", Attribute("String", "x")),
        (".a", Attribute("String", "x")),
        ("a.", Attribute("String", "x")),
        ("a..b", Attribute("String", "x")),
        ("aws.x", Attribute("String", "x")),
        ("AMAZON.x", Attribute("String", "x")),
        ("a b", Attribute("String", "x")),
        ("a!", Attribute("String", "x")),
        ("a§", Attribute("String", "x")),
        ("a" * 257, Attribute("String", "x")),
        ("a", Attribute("Text", "x")),
        ("a", Attribute("String.", "x")),
        ("a", Attribute("String", "")),
        ("a", Attribute("String", b"x")),
        ("a", Attribute("Binary", "x")),
        ("a", Attribute("Number", "seven")),
        ("a", Attribute("String", "\x00")),
        ("a", Attribute("String.\x00", "x")),
    ],
)
def test_bad_message_attributes_are_refused(name: str, attribute: Attribute) -> None:
    with pytest.raises(InvalidParameter):
        accepted(queue(), attributes={name: attribute})


@pytest.mark.parametrize(
    "attribute",
    [Attribute("String.label", "x"), Attribute("Number.int", "-1.5e3"), Attribute("Binary.png", b"\x00")],
)
def test_typed_and_labelled_attributes_are_accepted(attribute: Attribute) -> None:
    assert accepted(queue(), attributes={"a.b-c_1": attribute}).attributes == {"a.b-c_1": attribute}


@pytest.mark.parametrize("name", ["a.b-c_1", "attr.1øßä", "名前", "a" * 256])
def test_names_of_attributes_hold_letters_and_digits_of_any_script(name: str) -> None:
    assert list(accepted(queue(), attributes={name: Attribute("String", "x")}).attributes) == [name]


@pytest.mark.parametrize("number", ["1" * 1_000_000 + "x", "1" * 500_000 + "." + "1" * 500_000 + "x"])
def test_a_long_number_that_is_none_is_refused_at_once(number: str) -> None:
    """Twenty thousand digits took twelve seconds once, and these would have taken hours."""
    with pytest.raises(InvalidParameter, match="to a number"):
        accepted(queue(), attributes={"n": Attribute("Number", number)})


def test_no_more_than_ten_attributes() -> None:
    many = {f"a{i}": Attribute("String", "x") for i in range(11)}
    with pytest.raises(InvalidParameter):
        accepted(queue(), attributes=many)


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        ([], BatchEmpty),
        ([str(i) for i in range(11)], BatchTooManyEntries),
        (["a", ""], BatchEntryIdInvalid),
        (["a b"], BatchEntryIdInvalid),
        (["x" * 81], BatchEntryIdInvalid),
        (["a", "b", "a"], BatchEntryIdsNotDistinct),
    ],
)
def test_batches_are_told_apart_by_their_ids(ids: list[str], error: type[PenstockError]) -> None:
    with pytest.raises(error):
        check_entry_ids(ids, LIMITS)
    check_entry_ids(["a", "B-_9"], LIMITS)


@pytest.mark.parametrize(
    ("drafts", "fifo", "served"),
    [
        ([], False, 1),
        ([(None, 0), (None, 0), (None, 5_000)], False, 2),
        ([(None, 5_000), (None, 5_000)], False, 1),
        ([("a", 0), ("a", 0), ("b", 0)], False, 3),
        ([("a", 0), ("a", 0), ("b", 0)], True, 2),
    ],
)
def test_a_batch_serves_as_many_receives_as_it_has_messages_to_lease(
    drafts: list[tuple[str | None, int]], fifo: bool, served: int
) -> None:
    batch = [Draft(message_id="m", body="x", group=group, delay_ms=delay_ms) for group, delay_ms in drafts]
    assert receives_served(batch, fifo=fifo) == served
