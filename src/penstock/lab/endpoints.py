"""Where the lab's queues and tables are: boto3 clients for an endpoint, AWS, or this machine."""

from __future__ import annotations

import functools
import ipaddress
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
_DUMMY = {"aws_access_key_id": "lab", "aws_secret_access_key": "lab"}


def endpoint_of(queue_url: str) -> str | None:
    """Return the endpoint that a queue URL names; None for AWS, whose endpoint boto3 knows."""
    parts = urlsplit(queue_url)
    host = parts.hostname or ""
    if host == "amazonaws.com" or host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return None
    return f"{parts.scheme}://{parts.netloc}"


def on_loopback(endpoint: str | None) -> bool:
    """Return whether an endpoint is on this machine: nobody checks credentials there."""
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
def _session() -> boto3.session.Session:
    """Return the session whose service models every process of the lab shares."""
    require_boto3()
    import boto3  # noqa: PLC0415 - an extra

    return boto3.session.Session()


def client(
    service: str,
    *,
    endpoint: str | None,
    region: str | None = None,
    profile: str | None = None,
    proxy: str | None = None,
    tries: int = TRIES,
) -> Any:  # noqa: ANN401 - boto3 has no types for its clients
    """Make a boto3 client. On loopback it has dummy credentials and goes past any proxy but one that is named.

    A proxy that is named sees plain HTTP: `endpoint` must then be an http:// URL.
    """
    session = _session()
    from botocore.config import Config  # noqa: PLC0415 - an extra

    if profile:
        import boto3  # noqa: PLC0415 - an extra

        session = boto3.session.Session(profile_name=profile)
    retries = {"mode": "standard", "total_max_attempts": tries}
    settings: dict[str, Any] = {"read_timeout": READ_S, "retries": retries}
    local = on_loopback(endpoint)
    if local or proxy:
        settings["proxies"] = {"http": proxy} if proxy else {}
    return session.client(
        service,
        endpoint_url=endpoint,
        region_name=region or session.region_name or (LOCAL_REGION if local else REGION),
        config=Config(**settings),
        **(_DUMMY if local else {}),
    )


def sqs_of(queue_url: str, *, region: str | None = None, profile: str | None = None) -> Any:  # noqa: ANN401 - as above
    """Make an SQS client for a queue by its URL."""
    return client("sqs", endpoint=endpoint_of(queue_url), region=region, profile=profile)


def warm_up() -> None:
    """Load the models of the services, so that processes forked from this one have them."""
    client("sqs", endpoint="http://127.0.0.1:9").close()
