"""What a server refuses to be told."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.policy import Policy
from penstock.server.access import AccessKey
from penstock.server.config import ServerConfig, StartFailure


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_leave(host: str) -> None:
    ServerConfig(host=host).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_reach_has_to_be_asked_for(host: str) -> None:
    with pytest.raises(StartFailure, match="--insecure"):
        ServerConfig(host=host).check()
    ServerConfig(host=host, insecure=True).check()


def key(**changes: str) -> AccessKey:
    given = {"id": "AKIAEXAMPLE", "secret": "a very secret secret", "account": "111122223333", "user": "ann"}
    return AccessKey(**{**given, **changes}, policy=Policy())


def test_with_keys_any_address_will_do() -> None:
    ServerConfig(host="0.0.0.0", keys=(key(),)).check()


def test_secrets_are_not_shown() -> None:
    config = ServerConfig(
        store="postgresql://me:password@host/db", monitoring_token="a token for monitoring", keys=(key(),)
    )
    shown = repr(config) + repr(config.__rich_repr__()) + repr(config.keys)
    assert not any(secret in shown for secret in ("password", "a token", "secret secret"))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"port": -1}, "no port -1"),
        ({"port": 65_536}, "no port 65536"),
        ({"account": "1"}, "12 digits"),
        ({"account": "12345678901x"}, "12 digits"),
        ({"region": "Somewhere Else"}, "us-east-1"),
        ({"public_url": "queues.example"}, "neither http:// nor https://"),
        ({"tls_key": "key.pem"}, "both"),
        ({"tls_certificate": "certificate.pem"}, "both"),
        ({"purge_interval_s": -1}, "0 or more"),
        ({"name_reuse_s": -1}, "0 or more"),
        ({"monitoring_token": "short"}, "shorter than 16"),
        ({"keys": (key(), key())}, "AKIAEXAMPLE is declared twice"),
        ({"keys": (key(id="a/b"),)}, "The id of a key"),
        ({"keys": (key(secret=""),)}, "is empty"),
        ({"keys": (key(account="1"),)}, "12 digits"),
        ({"keys": (key(user="a b"),)}, "The user of the key"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(StartFailure, match=reason):
        ServerConfig(**settings).check()
