"""Requests as they are sent, with what a reader of a failure needs to know."""

from __future__ import annotations

import random
import time

import msgspec

from penstock.wire.http import Request
from tests.support.fuzzing.values import spoil
from tests.support.signing import signed

_SIGNED = "AWS4-HMAC-SHA256 Credential=any/20260101/"
HEADERS = [
    ("Accept", "application/json"),
    ("Accept", "text/html,*/*;q=0.8"),
    ("Content-Type", "application/json"),
    ("Content-Type", "text/plain; charset=utf-16"),
    ("Content-Encoding", "gzip"),
    ("Authorization", "Bearer x"),
    ("Authorization", "AWS4-HMAC-SHA256 Credential=a/b/c, Signature=0"),
    ("Authorization", f"{_SIGNED}eu-west-1/sqs/aws4_request, SignedHeaders=host, Signature=0"),
    ("Authorization", f"{_SIGNED}e u:w\x7fst/sqs/aws4_request"),
    ("X-Amz-Target", "AmazonSQS."),
    ("X-Amz-Target", "AmazonSQS.ReceiveMessage"),
    ("X-Amzn-Trace-Id", "Root=\x80\xff;"),
    ("amz-sdk-invocation-id", "00000000-0000-0000-0000-000000000000"),
    ("amz-sdk-request", "attempt=2; max=3"),
    ("Idempotency-Key", "k" * 300),
    ("Idempotency-Key", "k"),
    ("X-Correlation-Id", "\xe9"),
    ("traceparent", "00-0-0-00"),
    ("Last-Event-ID", "-1"),
    ("Last-Event-ID", "99999999999999999999"),
    ("Connection", "close"),
    ("X-Long", "y" * 5_000),
]


class Sent(msgspec.Struct):
    """One request. `framed` says that it is whole HTTP, and so has to be answered."""

    kind: str
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    framed: bool = True
    streamed: bool = False
    """Whether the answer may be one that does not end by itself."""
    data: bytes = b""

    def write(self) -> bytes:
        """Write the bytes that go over the wire."""
        if self.data:
            return self.data
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers)]
        lines += [f"Content-Length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body


class Credentials(msgspec.Struct):
    """What a campaign proves with who it is: a key of SQS, and a token of the job API."""

    key: str
    secret: str
    region: str
    token: str

    def prove(self, sent: Sent) -> None:
        """Sign a request of SQS, or add the token to another."""
        if sent.kind in {"v1", "places"}:
            sent.headers.append(("Authorization", f"Bearer {self.token}"))
            return
        path, _, query = sent.target.partition("?")
        headers = {name.lower(): value for name, value in sent.headers}
        request = Request(sent.method, path, query, headers, sent.body)
        at_ms = time.time_ns() // 1_000_000  # noqa: TID251 - the server's own time, which flows
        proved = signed(request, self.key, self.secret, at_ms=at_ms, region=self.region)
        sent.target = f"{path}?{proved.query}" if proved.query else path
        sent.headers = [(name, value) for name, value in proved.headers.items() if name != "content-length"]


def finish(rng: random.Random, sent: Sent, credentials: Credentials | None) -> Sent:
    """Add what any request may have besides, and spoil a few as HTTP."""
    sent.headers.insert(0, ("Host", "localhost:9324"))
    if credentials is not None and rng.random() < 0.9:
        credentials.prove(sent)
    if rng.random() < 0.1:
        sent.headers.append(rng.choice(HEADERS))
    if rng.random() < 0.02:
        sent.method = rng.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"])
    if rng.random() < 0.03:
        return garbage(rng, sent)
    return sent


def garbage(rng: random.Random, sent: Sent) -> Sent:
    """Make something of a request that may be no HTTP at all."""
    whole = sent.write()
    match rng.randrange(6):
        case 0:
            data = rng.randbytes(rng.randrange(200))
        case 1:
            head, _, body = whole.partition(b"\r\n\r\n")
            data = spoil(rng, head, chance=1) + b"\r\n\r\n" + body
        case 2:
            framing = rng.choice(
                [
                    b"Content-Length: -1",
                    b"Content-Length: 5\r\nContent-Length: 6",
                    b"Content-Length: 99999999999999999999",
                    b"Transfer-Encoding: chunked",
                    b"Transfer-Encoding: gzip, chunked",
                    b"Transfer-Encoding: chunked\r\nContent-Length: 3",
                    b"Expect: 100-continue",
                    b"Upgrade: h2c\r\nConnection: Upgrade",
                    b"Host: a\r\nHost: b",
                    b": nameless",
                    b" folded",
                ]
            )
            data = whole.replace(b"\r\n", b"\r\n" + framing + b"\r\n", 1)
        case 3:
            version = rng.choice([b"", b" HTTP/1.0", b" HTTP/2.0", b" HTTP/9.9", b"\0HTTP/1.1"])
            data = whole.replace(b" HTTP/1.1", version, 1)
        case 4:
            data = whole[: rng.randrange(len(whole))]
        case _:
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (sent.body[:7], sent.body[7:]) if part)
            head = whole.partition(b"\r\n\r\n")[0].replace(b"Content-Length:", b"X-Length:")
            data = head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + spoil(rng, chunks + b"0\r\n\r\n", chance=0.5)
    return Sent("garbage", sent.method, sent.target, [], framed=False, data=data or b"\0")
