from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.job import Lease
from penstock.domain.job_errors import LeaseTokenInvalid
from penstock.wire.jobs.tokens import LeaseTokens

TOKENS = LeaseTokens(b"s" * 32)
LEASE = Lease("01234567-89ab-cdef-0123-456789abcdef", 3, 70_000_000_000)


@given(st.builds(Lease, st.uuids().map(str), st.integers(min_value=0, max_value=2**32 - 1), st.integers(0, 2**63 - 1)))
def test_a_token_stands_for_its_lease(lease: Lease) -> None:
    token = TOKENS.encode(lease)
    assert TOKENS.decode(token) == lease
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_every_change_of_a_token_is_noticed() -> None:
    raw = base64.urlsafe_b64decode(TOKENS.encode(LEASE))
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1
        with pytest.raises(LeaseTokenInvalid):
            TOKENS.decode(base64.urlsafe_b64encode(changed).decode())


def test_a_token_of_another_service_is_none() -> None:
    with pytest.raises(LeaseTokenInvalid):
        TOKENS.decode(LeaseTokens(b"t" * 32).encode(LEASE))


@pytest.mark.parametrize("text", ["", "x", "é", "A" * 56, "A" * 1_000, "=" * 56, "\x00"])
def test_any_other_text_is_none(text: str) -> None:
    with pytest.raises(LeaseTokenInvalid):
        TOKENS.decode(text)
