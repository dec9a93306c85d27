"""Queue URLs: from the forms in which clients write them to the name of a queue, and back."""

from __future__ import annotations

import functools
import re

from penstock.domain.queue import QueueName

_QUEUE = "queue"
_REGION = r"[a-z]{2}(?:-[a-z]+)+-[0-9]+"
_SCHEME_AND_HOST = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_REGION_IN_HOST = re.compile(rf"(?:sqs\.({_REGION})|({_REGION})\.queue)\.", re.IGNORECASE)
_URL_CHARACTERS_MAX = 1_024
_URLS_REMEMBERED = 20_000


def parse_queue_url(url: str, region: str, account: str) -> QueueName | None:
    """Read the name of a queue from a URL with whatever host, from a path, or from a bare name; None if there is none.

    `region` and `account` stand in for what the URL does not tell. The region may be in the host, as in Amazon's own
    URLs, or in the path.
    """
    return _parse(url, region, account) if len(url) <= _URL_CHARACTERS_MAX else None


@functools.lru_cache(maxsize=_URLS_REMEMBERED)
def _parse(url: str, region: str, account: str) -> QueueName | None:
    host = _SCHEME_AND_HOST.match(url)
    if host:
        region = region_of_host(host[1]) or region
        url = url[host.end() :]
    path, _, _ = url.partition("?")
    match [part for part in path.split("/") if part]:
        case [name] if name != _QUEUE or not path.startswith("/"):
            return QueueName(region, account, name)
        case [*_, word, told_region, told_account, name] if word == _QUEUE:
            return QueueName(told_region, told_account, name)
        case [*_, word, name] if word == _QUEUE:
            return QueueName(region, account, name)
        case [*_, told_account, name]:
            return QueueName(region, told_account, name)
        case _:
            return None


def queue_url(name: QueueName, base_url: str, default_region: str) -> str:
    """Write the URL of a queue beneath `base_url`, so that those of different regions differ.

    The region is told in the path where neither the host tells it nor the default does.
    """
    if name.region in (default_region, region_of_host(base_url.partition("://")[2])):
        return f"{base_url}/{name.account}/{name.name}"
    return f"{base_url}/{_QUEUE}/{name.region}/{name.account}/{name.name}"


def region_of_host(host: str) -> str | None:
    """Read the region from a host such as `sqs.eu-west-1.example.com`, or None."""
    found = _REGION_IN_HOST.match(host)
    return (found[1] or found[2]).lower() if found else None
