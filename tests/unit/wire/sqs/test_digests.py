"""Digests that Amazon SQS itself has answered with."""

from __future__ import annotations

import pytest

from penstock.domain.message import Attribute
from penstock.wire.sqs.digests import attributes_digest, body_digest

BODIES = [
    ("msg", "6e2baaf3b97dbeef01c0043275f9a0e7"),
    ("message", "78e731027d8fd50ed642340b7c9a63b3"),
    ("a", "0cc175b9c0f1b6a831c399e269772661"),
]

ATTRIBUTES = [
    ({}, None),
    ({"Foo": Attribute("String", "Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
    ({"Hello": Attribute("String", "There")}, "a311262e065454b75da111d535b8dacd"),
    (
        {
            "Hello": Attribute("String", "There"),
            "General": Attribute("String", "Kenobi"),
            "Help.Me": Attribute("String", "Me"),
        },
        "4c360f3fdafd970e05fae2f149d997f5",
    ),
    ({"timestamp": Attribute("Number", "1493147359900")}, "235c5c510d26fb653d073faed50ae77c"),
    ({"timestamp": Attribute("Number.java.lang.Long", "1493147359900")}, "2e2e4876d8e0bd6b8c2c8f556831c349"),
    (
        {"attr1": Attribute("Binary", b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01")},
        "8cbe4db156db8a94db8b801b7addb984",
    ),
]


@pytest.mark.parametrize(("body", "digest"), BODIES)
def test_the_digest_of_a_body(body: str, digest: str) -> None:
    assert body_digest(body) == digest


@pytest.mark.parametrize(("attributes", "digest"), ATTRIBUTES)
def test_the_digest_of_attributes(attributes: dict[str, Attribute], digest: str | None) -> None:
    assert attributes_digest(attributes) == digest


def test_the_order_in_which_attributes_come_does_not_matter() -> None:
    attributes = ATTRIBUTES[3][0]
    assert attributes_digest(dict(reversed(attributes.items()))) == ATTRIBUTES[3][1]
