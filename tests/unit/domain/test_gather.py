from __future__ import annotations

from uuid import UUID

from penstock.domain.gather import id_after, id_at

GATHER_ID = "0192f0c0-1234-7abc-8def-0123456789ab"


def test_the_ids_of_a_chain_are_stable_distinct_and_begin_with_the_same_time() -> None:
    ids = [GATHER_ID]
    for _ in range(50):
        ids.append(id_after(ids[-1]))
    assert ids[1] == "0192f0c0-1234-8c92-997e-7aac733beecb"
    assert len(set(ids)) == 51
    for text in ids[1:]:
        assert (text[:13], UUID(text).version, str(UUID(text))) == (GATHER_ID[:13], 8, text)


def test_no_job_of_a_gather_has_the_id_of_the_gather_that_follows() -> None:
    assert id_after(GATHER_ID) not in {id_at(GATHER_ID, index) for index in range(-1, 1_000)}
