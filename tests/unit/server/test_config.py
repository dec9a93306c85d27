"""What a server refuses to be told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.domain.policy import Policy
from penstock.server.access import AccessKey
from penstock.server.config import ServerConfig, StartFailure
from penstock.server.jobs.access import ApiToken, Caller, Scope


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_leave(host: str) -> None:
    ServerConfig(host=host).check()


@pytest.mark.parametrize("host", ["no..host", "x" * 64, "\ud800"])
def test_a_host_that_cannot_be_is_named(host: str) -> None:
    with pytest.raises(StartFailure, match="is unknown"):
        ServerConfig(host=host).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_reach_has_to_be_asked_for(host: str) -> None:
    with pytest.raises(StartFailure, match="reachable from other machines") as failure:
        ServerConfig(host=host).check()
    assert failure.value.refused
    assert failure.value.hint.endswith("--insecure")
    ServerConfig(host=host, insecure=True).check()


def key(**changes: str) -> AccessKey:
    given = {"id": "AKIAEXAMPLE", "secret": "a very secret secret", "account": "111122223333", "user": "ann"}
    return AccessKey(**{**given, **changes}, policy=Policy())


def token(name: str = "app", digest: bytes = b"a digest", scopes: str = "read", **limits: Any) -> ApiToken:
    given = frozenset(Scope(scope) for scope in scopes.split())
    return ApiToken(caller=Caller(name=name, scopes=given, **limits), digest=digest)


def test_with_keys_or_tokens_any_address_will_do() -> None:
    ServerConfig(host="0.0.0.0", keys=(key(),)).check()
    ServerConfig(host="0.0.0.0", tokens=(token(),)).check()


def test_secrets_are_not_shown() -> None:
    config = ServerConfig(
        store="postgresql://me:password@host/db",
        monitoring_token="a token for monitoring",
        keys=(key(),),
        tokens=(token(),),
    )
    shown = repr(config) + repr(config.__rich_repr__()) + repr(config.keys) + repr(config.tokens)
    assert not any(secret in shown for secret in ("password", "a token", "secret secret", "a digest"))


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
        ({"allowed_host": ("http://queues.example",)}, "neither a name"),
        ({"allowed_host": ("queues.example:9324",)}, "neither a name"),
        ({"allowed_host": ("*",)}, "neither a name"),
        ({"allowed_host": ("",)}, "neither a name"),
        ({"allowed_origin": ("app.example",)}, "a scheme, a host"),
        ({"allowed_origin": ("https://app.example/",)}, "a scheme, a host"),
        ({"allowed_origin": ("*",)}, "a scheme, a host"),
        ({"allowed_origin": ("null",)}, "a scheme, a host"),
        ({"connections_max": 0}, "1 or more"),
        ({"request_memory_mib": 63}, "from 64"),
        ({"client_timeout_s": 0}, "more than 0"),
        ({"client_timeout_s": math.nan}, "more than 0"),
        ({"client_timeout_s": 3_601}, "at most 3600"),
        ({"purge_interval_s": -1}, "0 or more"),
        ({"name_reuse_s": -1}, "0 or more"),
        ({"monitoring_token": "short"}, "shorter than 16"),
        ({"keys": (key(), key())}, "AKIAEXAMPLE is declared twice"),
        ({"keys": (key(id="a/b"),)}, "The id of a key"),
        ({"keys": (key(secret=""),)}, "is empty"),
        ({"keys": (key(account="1"),)}, "12 digits"),
        ({"keys": (key(user="a b"),)}, "The user of the key"),
        ({"tokens": (token(), token(digest=b"other"))}, "The token app is declared twice"),
        ({"tokens": (token(), token("other"))}, "The token other is declared under another name too"),
        ({"tokens": (token("a b"),)}, "The name of a token"),
        ({"tokens": (token(scopes=""),)}, "has no scopes"),
        ({"tokens": (token(tenant=""),)}, "The tenant of the token app"),
        ({"tokens": (token(tenant="a\nb"),)}, "The tenant of the token app"),
        ({"tokens": (token(tenant="acme", scopes="enqueue work"),)}, "the scope work is about all"),
        ({"tokens": (token(tenant="acme", scopes="read admin"),)}, "the scope admin is about all"),
        ({"tokens": (token(queues=("a b",)),)}, "names a queue that is not"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(StartFailure, match=reason):
        ServerConfig(**settings).check()
