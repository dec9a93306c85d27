"""Where the lab's queues and tables are: boto3 clients for an endpoint, AWS, or this machine."""

from __future__ import annotations

import functools
import ipaddress
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import boto3

REGION = "us-west-1"
LOCAL_REGION = "us-east-1"
"""That of `penstock serve`, unless it is told another."""
READ_S = 70.0
"""Longer than any long poll."""
TRIES = 5
"""How often the SDK tries a call."""
CREDENTIALS = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"})
"""The variables that boto3 takes credentials from. They override AWS_PROFILE."""
_DUMMY = {"aws_access_key_id": "lab", "aws_secret_access_key": "lab"}
_LOCAL_SOURCES = frozenset({"env", "shared-credentials-file", "config-file"})
"""Where credentials for loopback come from, as botocore calls it: nothing that runs a program or calls a service."""


def endpoint_of(queue_url: str) -> str | None:
    """Return the endpoint that a queue URL names; None for AWS, whose endpoint boto3 knows."""
    parts = urlsplit(queue_url)
    host = parts.hostname or ""
    if host == "amazonaws.com" or host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return None
    return f"{parts.scheme}://{parts.netloc}"


def on_loopback(endpoint: str | None) -> bool:
    """Return whether an endpoint is on this machine."""
    host = urlsplit(endpoint or "").hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_boto3() -> None:
    """Raise `ModuleNotFoundError` with the way out where boto3 is not installed, before anything is started."""
    if find_spec("boto3") is None:
        raise ModuleNotFoundError("The lab needs boto3: pip install 'penstock[sqs]'", name="boto3")


@functools.cache
def _session(profile: str | None, environment_profile: str | None) -> boto3.session.Session:  # noqa: ARG001 - see below
    """Return the session of a profile. Processes of the lab share the service models of the one that they inherit.

    `environment_profile` is AWS_PROFILE, which a session reads by itself, and only once.
    """
    require_boto3()
    import boto3  # noqa: PLC0415 - an extra

    return boto3.session.Session(profile_name=profile)


def _local_credentials(session: boto3.session.Session) -> dict[str, Any]:
    """Return the credentials for an endpoint on loopback: the user's, else some that a server without keys accepts."""
    from botocore.credentials import create_credential_resolver  # noqa: PLC0415 - an extra

    # boto3 would go on to the instance metadata service, which does not answer on most machines.
    core = session._session  # noqa: SLF001 - boto3 has no other way to choose where credentials come from
    for provider in create_credential_resolver(core).providers:
        if provider.METHOD in _LOCAL_SOURCES and (found := provider.load()) is not None:
            return {
                "aws_access_key_id": found.access_key,
                "aws_secret_access_key": found.secret_key,
                "aws_session_token": found.token,
            }
    return _DUMMY


def session_of(profile: str | None) -> boto3.session.Session:
    """Return a session; raises botocore's `ProfileNotFound`."""
    # As the environment is now: it may have changed since this process was forked.
    return _session(profile or None, os.environ.get("AWS_PROFILE"))


def region_of(endpoint: str | None, region: str | None, profile: str | None = None) -> str:
    """Return the region that is meant: the one that is given, that of the AWS configuration, or the usual one."""
    found: str | None = region or session_of(profile).region_name
    return found or (LOCAL_REGION if on_loopback(endpoint) else REGION)


def where(region: str, endpoint: str | None) -> str:
    """Return for people where queues and tables are."""
    return f"in {region} on AWS" if endpoint is None else f"in {region} at {endpoint}"


def client(
    service: str,
    *,
    endpoint: str | None,
    region: str | None = None,
    profile: str | None = None,
    proxy: str | None = None,
    tries: int = TRIES,
) -> Any:  # noqa: ANN401 - boto3 has no types for its clients
    """Make a boto3 client. On loopback it needs no credentials, and goes past any proxy but one that is named.

    A proxy that is named sees plain HTTP: `endpoint` must then be an http:// URL.
    """
    session = _session(profile or None, os.environ.get("AWS_PROFILE"))
    from botocore.config import Config  # noqa: PLC0415 - an extra

    retries = {"mode": "standard", "total_max_attempts": tries}
    settings: dict[str, Any] = {"read_timeout": READ_S, "retries": retries}
    local = on_loopback(endpoint)
    if local or proxy:
        settings["proxies"] = {"http": proxy} if proxy else {}
    return session.client(
        service,
        endpoint_url=endpoint,
        region_name=region_of(endpoint, region, profile),
        config=Config(**settings),
        **(_local_credentials(session) if local else {}),
    )


def sqs_of(queue_url: str, *, region: str | None = None, profile: str | None = None) -> Any:  # noqa: ANN401 - as above
    """Make an SQS client for a queue by its URL."""
    return client("sqs", endpoint=endpoint_of(queue_url), region=region, profile=profile)


def warm_up() -> None:
    """Load the models of the services, so that processes forked from this one have them."""
    client("sqs", endpoint="http://127.0.0.1:9").close()
