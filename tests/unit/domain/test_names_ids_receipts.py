"""Names, ids, receipt handles and failpoints."""

import itertools
import os
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidParameter, PenstockError, ReceiptHandleInvalid, StoreUnavailable
from penstock.domain.failpoints import Failpoints
from penstock.domain.ids import CountedIds, OrderedIds
from penstock.domain.message import Receipt
from penstock.domain.queue import QueueName
from penstock.domain.receipt import ReceiptHandles

HANDLES = ReceiptHandles(b"k" * 32)


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 80, "a.fifo", "x" * 75 + ".fifo"])
def test_good_names_pass(name: str) -> None:
    QueueName("r", "a", name).check()


@pytest.mark.parametrize("name", ["", "x" * 81, "a b", "a.b", ".fifo", "x" * 76 + ".fifo", "a.FIFO", "é"])
def test_bad_names_are_refused_in_amazons_words(name: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        QueueName("r", "a", name).check()
    assert refused.value.reason == (
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
        "must end with .fifo suffix and be 1 to 80 in length."
        if name.endswith(".fifo")
        else "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    )


def test_an_arn_is_read_back() -> None:
    name = QueueName("eu-west-1", "123456789012", "orders.fifo")
    assert QueueName.from_arn(name.arn) == name
    assert name.fifo


@pytest.mark.parametrize(
    "arn", ["", "orders", "arn:aws:sns:r:a:n", "arn:aws:sqs:r:a", "arn:aws:sqs:r:a:n:m", "arn:aws:sqs:::"]
)
def test_other_texts_are_no_arns(arn: str) -> None:
    with pytest.raises(InvalidParameter):
        QueueName.from_arn(arn)


def test_a_forked_process_makes_ids_of_its_own() -> None:
    ids = OrderedIds()
    ids.new_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(ids.new_id() for _ in range(300)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = pipe.read().split()
    os.waitpid(child, 0)
    assert len(theirs) == 300
    assert not {ids.new_id() for _ in range(300)} & set(theirs)


def test_ids_are_version_7_uuids_of_the_present_instant() -> None:
    source = OrderedIds(lambda: 0x0123_4567_89AB)
    ids = [source.new_id() for _ in range(1_000)]
    assert all(str(uuid.UUID(text)) == text and uuid.UUID(text).version == 7 for text in ids)
    assert {uuid.UUID(text).variant for text in ids} == {uuid.RFC_4122}
    assert {text[:13] for text in ids} == {"01234567-89ab"}


@pytest.mark.parametrize(
    ("instants", "count"),
    [([1_000], 10_000), ([1_000, 900, 1_000, 5], 10_000), (list(range(1_000, 1_300)), 300)],
    ids=["the clock stands still", "it steps back", "it goes on"],
)
def test_each_id_is_greater_than_the_one_before(instants: list[int], count: int) -> None:
    clock = itertools.cycle(instants)
    source = OrderedIds(lambda: next(clock))
    ids = [source.new_id() for _ in range(count)]
    assert ids == sorted(ids)
    assert len({text[19:] for text in ids}) == count


def test_counted_ids_repeat_from_run_to_run() -> None:
    ids = CountedIds()
    assert [ids.new_id(), ids.new_id()] == [str(uuid.UUID(int=1)), str(uuid.UUID(int=2))]


@given(
    st.builds(
        Receipt,
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**32 - 1),
    )
)
def test_handles_are_read_back(receipt: Receipt) -> None:
    handle = HANDLES.encode(receipt)
    assert HANDLES.decode(handle) == receipt
    assert re.fullmatch("[A-Za-z0-9+/]{36}", handle)


def test_handles_that_were_given_out_in_the_alphabet_for_urls_stay_valid() -> None:
    receipts = [Receipt(number, number * 2**40, number) for number in range(100)]
    handles = [HANDLES.encode(receipt).replace("+", "-").replace("/", "_") for receipt in receipts]
    assert any("-" in handle for handle in handles)
    assert any("_" in handle for handle in handles)
    assert [HANDLES.decode(handle) for handle in handles] == receipts


@given(st.text(max_size=60))
def test_other_texts_are_no_handles(text: str) -> None:
    with pytest.raises(ReceiptHandleInvalid):
        HANDLES.decode(text)


def test_a_handle_that_was_tampered_with_or_made_elsewhere_is_refused() -> None:
    handle = HANDLES.encode(Receipt(1, 2, 3))
    for forged in (handle[:-1], handle + "AAAA", "B" + handle[1:], handle + "\n", handle.swapcase()):
        with pytest.raises(ReceiptHandleInvalid):
            HANDLES.decode(forged)
    with pytest.raises(ReceiptHandleInvalid):
        ReceiptHandles(b"other" * 6).decode(handle)


async def test_a_failpoint_acts_once_and_in_order() -> None:
    failpoints = Failpoints()
    passed: list[str] = []

    async def act() -> None:
        passed.append("awaited")

    def fail() -> None:
        raise StoreUnavailable("gone")

    assert not failpoints
    failpoints.arm("here", act)
    failpoints.arm("here", fail)
    await failpoints.reach("elsewhere")
    await failpoints.reach("here")
    assert passed == ["awaited"]
    assert failpoints.armed("here")
    with pytest.raises(PenstockError, match="gone"):
        await failpoints.reach("here")
    assert not failpoints
    await failpoints.reach("here")
