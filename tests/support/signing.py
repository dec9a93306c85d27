"""Requests signed by botocore, at any instant."""

from __future__ import annotations

import datetime as dt
from unittest import mock
from urllib.parse import urlsplit

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock.wire.http import Request

REGION = "eu-west-1"


def signed(
    request: Request,
    key: str,
    secret: str,
    *,
    at_ms: int,
    region: str = REGION,
    service: str = "sqs",
    token: str | None = None,
) -> Request:
    """Sign in the `Authorization` header."""
    signer = auth.SigV4Auth(Credentials(key, secret, token), service, region)
    return _sent(request, signer, at_ms)


def presigned(request: Request, key: str, secret: str, *, at_ms: int, expires_s: int, region: str = REGION) -> Request:
    """Sign in advance, in the query."""
    signer = auth.SigV4QueryAuth(Credentials(key, secret), "sqs", region, expires=expires_s)
    return _sent(request, signer, at_ms)


def _sent(request: Request, signer: auth.SigV4Auth, at_ms: int) -> Request:
    url = f"http://{request.headers['host']}{request.path}" + (f"?{request.query}" if request.query else "")
    headers = {name: value for name, value in request.headers.items() if name != "host"}
    written = AWSRequest(method=request.method, url=url, data=request.body, headers=headers)
    moment = dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC).replace(tzinfo=None)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment):
        signer.add_auth(written)
    prepared = written.prepare()
    sent = {name.lower(): str(value) for name, value in prepared.headers.items()}
    parts = urlsplit(prepared.url)
    return Request(
        request.method, request.path, parts.query, sent | {"host": request.headers["host"]}, prepared.body or b""
    )
