"""Requests of SQS, made from Amazon's own model of it and then changed: JSON, Query by POST and GET, presigned."""

from __future__ import annotations

import base64
import random
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from botocore.model import Shape

from tests.support.fuzzing.http import Sent
from tests.support.fuzzing.values import Pool, as_json, mutate, spoil, text, without_waits
from tests.support.sqs_model import operation_model, sqs_model, write_request

ACCOUNT = "000000000000"
CHANGES = [0, 0, 0, 1, 1, 2, 4]
"""How often a request is changed: many are not, so that there is something for the others to be about."""
QUEUES = ["fuzzed", "fuzzed-2", "dead", "fuzzed.fifo", "dead.fifo"]
OPERATIONS = sorted(sqs_model("json").operation_names)
# What a campaign that also deletes everything would soon be about nothing.
_RARE = {"DeleteQueue", "PurgeQueue"}
_COMMON = ["SendMessage", "ReceiveMessage", "SendMessageBatch", "SetQueueAttributes", "CreateQueue"]
_ATTRIBUTES = {
    "DelaySeconds": ["0", "1", "900", "901", "-1", "x"],
    "MaximumMessageSize": ["1024", "1048576", "1048577"],
    "MessageRetentionPeriod": ["60", "1209600", "59"],
    "ReceiveMessageWaitTimeSeconds": ["0", "21"],
    "VisibilityTimeout": ["0", "1", "43200", "43201"],
    "FifoQueue": ["true", "false", "TRUE"],
    "ContentBasedDeduplication": ["true", "false", "maybe"],
    "DeduplicationScope": ["queue", "messageGroup"],
    "FifoThroughputLimit": ["perQueue", "perMessageGroupId"],
    "KmsMasterKeyId": ["alias/aws/sqs", ""],
    "KmsDataKeyReusePeriodSeconds": ["60", "86401"],
    "SqsManagedSseEnabled": ["true", "false"],
}


def arn(name: str) -> str:
    return f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"


class SqsRequests:
    """Writes requests. What earlier answers said is in the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def request(self, rng: random.Random) -> Sent:
        """Make one request, in one of the ways that SQS is spoken."""
        operation = rng.choice(_COMMON if rng.random() < 0.4 else OPERATIONS)
        if operation in _RARE and rng.random() < 0.9:
            operation = "ReceiveMessage"
        parameters = self._structure(rng, operation_model("json", operation).input_shape)
        queue = rng.choice(QUEUES)
        if "QueueUrl" in parameters:
            parameters["QueueUrl"] = rng.choice([queue, f"http://localhost:9324/{ACCOUNT}/{queue}"])
        path = rng.choices(["/", f"/{ACCOUNT}/{queue}", f"/queue/us-east-1/{ACCOUNT}/{queue}"], [6, 3, 1])[0]
        if path != "/" and rng.random() < 0.5:
            parameters.pop("QueueUrl", None)
        if operation.startswith("SendMessage") and rng.random() < 0.8:
            for entry in parameters.get("Entries", [parameters]):
                _make_sound(entry, fifo=queue.endswith(".fifo"))
        way = rng.choice([self._json, self._json, self._form, self._get, self._presigned])
        sent = way(rng, operation, parameters)
        sent.target = spoilt_target(rng, path) + sent.target
        return sent

    # -- ways --------------------------------------------------------------------------------------

    def _json(self, rng: random.Random, operation: str, parameters: dict[str, Any]) -> Sent:
        body = as_json(rng, without_waits(mutate(rng, _without_bytes(parameters), rng.choice(CHANGES))))
        target = operation if rng.random() < 0.98 else rng.choice(["", "Fly", operation.lower(), "\x80"])
        headers = [("Content-Type", "application/x-amz-json-1.0"), ("X-Amz-Target", f"AmazonSQS.{target}")]
        if rng.random() < 0.2:
            headers.append(("amz-sdk-invocation-id", f"i-{rng.randrange(50)}"))
        return Sent("json", "POST", "", headers, body)

    def _form(self, rng: random.Random, operation: str, parameters: dict[str, Any]) -> Sent:
        body = spoil(rng, urlencode(self._flat(rng, operation, parameters)).encode(), chance=0.05)
        headers = [("Content-Type", "application/x-www-form-urlencoded")]
        return Sent("query POST", "POST", rng.choice(["", "", "?Version=2012-11-05"]), headers, body)

    def _get(self, rng: random.Random, operation: str, parameters: dict[str, Any]) -> Sent:
        query = urlencode(self._flat(rng, operation, parameters))[:30_000]
        return Sent("query GET", "GET", f"?{query}", [])

    def _presigned(self, rng: random.Random, operation: str, parameters: dict[str, Any]) -> Sent:
        region = rng.choice(["us-east-1", "eu-west-1", "", "a b", "\0", "é", "x" * 100])
        signed = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"any/20260101/{region}/sqs/aws4_request",
            "X-Amz-Date": "20260101T000000Z",
            "X-Amz-Expires": rng.choice(["60", "-1", "x", "9" * 30]),
            "X-Amz-SignedHeaders": "host",
            "X-Amz-Signature": "0" * 64,
        }
        for name in list(signed):
            if rng.random() < 0.05:
                signed[name] = text(rng)
        query = urlencode(signed) + "&" + urlencode(self._flat(rng, operation, parameters))[:30_000]
        return Sent("presigned", "GET", f"?{query}", [])

    def _flat(self, rng: random.Random, operation: str, parameters: dict[str, Any]) -> list[tuple[str, str]]:
        """Write parameters as pairs of the Query protocol, and change some of them."""
        written = write_request("query", operation, parameters).body.decode()
        flat = parse_qsl(written, keep_blank_values=True)
        for _ in range(rng.choice(CHANGES)):
            at = rng.randrange(len(flat))
            name, value = flat[at]
            match rng.randrange(6):
                case 0 | 1:
                    flat[at] = (name, text(rng))
                case 2:
                    steps = name.split(".")
                    steps[rng.randrange(len(steps))] = rng.choice(["0", "-1", "x", "", "99999999999", "1.1", text(rng)])
                    flat[at] = (".".join(steps), value)
                case 3:
                    flat.append((name, text(rng)))
                case 4 if len(flat) > 1:
                    del flat[at]
                case _:
                    flat[at] = (f"{name}.{rng.choice(['1', 'Name', 'Value', '1.Name'])}", value)
        return flat

    # -- parameters --------------------------------------------------------------------------------

    def _structure(self, rng: random.Random, shape: Shape | None) -> dict[str, Any]:
        if shape is None:
            return {}
        required = shape.required_members
        return {
            name: self._value(rng, name, member)
            for name, member in shape.members.items()
            if name in required or rng.random() < 0.4
        }

    def _value(self, rng: random.Random, name: str, shape: Shape) -> Any:  # noqa: PLR0911 - a case for each type
        match shape.type_name:
            case "structure":
                return self._structure(rng, shape)
            case "list":
                return [self._value(rng, name, shape.member) for _ in range(rng.choice([0, 1, 1, 2, 3, 11]))]
            case "map" if name == "Attributes":
                return self._attributes(rng)
            case "map":
                return {
                    rng.choice(["a", "b", "team", "colour.1"]): self._value(rng, name, shape.value)
                    for _ in range(rng.choice([0, 1, 2]))
                }
            case "integer" | "long":
                return rng.choice([0, 0, 1]) if "Wait" in name else rng.choice([0, 1, 1, 2, 10, 900])
            case "boolean":
                return rng.random() < 0.5
            case "blob":
                return rng.randbytes(rng.randrange(5))
        return self._text(rng, name)

    def _text(self, rng: random.Random, name: str) -> str:
        known = {
            "QueueName": rng.choice([*QUEUES, "other-1", "other-2"]),
            "QueueNamePrefix": rng.choice(["", "f", "fuzzed"]),
            "SourceArn": arn(rng.choice(QUEUES)),
            "DestinationArn": arn(rng.choice(QUEUES)),
            "Id": rng.choice("abcdefghijklm"),
            "MessageBody": rng.choice(["a", "é" * 10, "b" * 1_000]),
            "MessageGroupId": rng.choice("ghi"),
            "DataType": rng.choice(["String", "Number", "Binary", "Number.int", "Fancy"]),
            "StringValue": rng.choice(["1", "text"]),
            "AttributeNames": rng.choice(["All", *_ATTRIBUTES]),
            "MessageSystemAttributeNames": rng.choice(["All", "SentTimestamp"]),
            "MessageAttributeNames": rng.choice(["All", ".*", "a.*"]),
            "Label": rng.choice(["one", "two"]),
            "AWSAccountIds": rng.choice([ACCOUNT, "111122223333"]),
            "Actions": rng.choice(["SendMessage", "*", "DeleteQueue"]),
            "TagKeys": rng.choice("ab"),
        }
        pooled = self._pool.draw(rng, name) if rng.random() < 0.8 else None
        return pooled or known.get(name) or rng.choice(["x", str(rng.randrange(20))])

    def _attributes(self, rng: random.Random) -> dict[str, str]:
        names = rng.sample(sorted(_ATTRIBUTES), rng.choice([0, 1, 2]))
        chosen = {name: rng.choice(_ATTRIBUTES[name]) for name in names}
        if rng.random() < 0.3:
            redrive = {"deadLetterTargetArn": arn(rng.choice(QUEUES)), "maxReceiveCount": rng.choice([1, 3, "2"])}
            chosen["RedrivePolicy"] = self._document(rng, redrive)
        if rng.random() < 0.2:
            permission = rng.choice(["allowAll", "denyAll", "byQueue"])
            allow = {"redrivePermission": permission, "sourceQueueArns": [arn("fuzzed")]}
            chosen["RedriveAllowPolicy"] = self._document(rng, allow)
        if rng.random() < 0.3:
            statement = {
                "Sid": "s",
                "Effect": rng.choice(["Allow", "Deny"]),
                "Principal": rng.choice(["*", {"AWS": ["111122223333"]}]),
                "Action": rng.choice(["sqs:*", ["sqs:SendMessage", "sqs:Receive*"]]),
                "Resource": rng.choice(["*", arn("fuzzed"), "arn:aws:sqs:*:*:*a*b*c*?d"]),
                "Condition": {"StringLike": {"aws:username": ["a*"]}, "Bool": {"aws:SecureTransport": True}},
            }
            chosen["Policy"] = self._document(rng, {"Version": "2012-10-17", "Id": "p", "Statement": [statement]})
        return chosen

    def _document(self, rng: random.Random, value: dict[str, Any]) -> str:
        if rng.random() < 0.1:
            return rng.choice(["", "[" * 9_000, '{"a":' * 9_000, "null", "\0"])
        return as_json(rng, mutate(rng, value, rng.choice([0, 0, 1, 2]))).decode(errors="replace")


def _make_sound(entry: dict[str, Any], *, fifo: bool) -> None:
    """Take out of a message what no queue takes, and what this queue does not take."""
    for name in ("MessageSystemAttributes", "DelaySeconds", "MessageDeduplicationId"):
        entry.pop(name, None)
    for attribute in entry.get("MessageAttributes", {}).values():
        attribute.clear()
        attribute.update(DataType="String", StringValue="v")
    if fifo:
        entry.setdefault("MessageGroupId", "g")
        entry["MessageDeduplicationId"] = entry.get("Id", entry["MessageGroupId"])


def spoilt_target(rng: random.Random, path: str) -> str:
    """Return a path as it is, or now and then another."""
    if rng.random() < 0.97:
        return path
    other = quote(text(rng))[:3_000]
    return rng.choice([path + "/", f"/{path}", f"{path}/{other}", f"/{other}", "/%00", "//", "/queue"])


def _without_bytes(value: Any) -> Any:
    """Write blobs as JSON has them."""
    match value:
        case dict():
            return {name: _without_bytes(member) for name, member in value.items()}
        case list():
            return [_without_bytes(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
    return value
