from __future__ import annotations

import base64

import pytest

from penstock.domain.errors import InvalidParameter
from penstock.wire.sqs.move_handles import MoveHandle, decode_move_handle, encode_move_handle

HANDLE = MoveHandle("t-1", "arn:aws:sqs:us-east-1:000000000000:dead")
TEXT = base64.b64encode(b'{"taskId":"t-1","sourceArn":"arn:aws:sqs:us-east-1:000000000000:dead"}').decode()


def test_a_handle_is_base64_of_the_task_and_its_source() -> None:
    assert encode_move_handle(HANDLE) == TEXT
    assert decode_move_handle(TEXT) == HANDLE


@pytest.mark.parametrize(
    "text",
    ["", "foobared", "é", TEXT[:-5], base64.b64encode(b"{}").decode(), base64.b64encode(b"[" * 100_000).decode()],
    ids=["empty", "no base64", "no ASCII", "truncated", "no task", "deep"],
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"^Value for parameter TaskHandle is invalid\.$"):
        decode_move_handle(text)
