"""Requests of the job API and of the server's other places, made from the OpenAPI document and then changed."""

from __future__ import annotations

import random
from typing import Any
from urllib.parse import quote, urlencode

from tests.support.fuzzing.http import Sent
from tests.support.fuzzing.values import Pool, as_json, mutate, text, without_waits

QUEUES = ["work", "work-2", "more.work"]
PLACES = [
    "/",
    "/health",
    "/healthz",
    "/readyz",
    "/stats",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/v1",
    "/v1/",
    "/v1/jobs/",
    "/ui",
]
PEEKED = ["fuzzed", "fuzzed.fifo", "missing"]
CHANGES = [0, 0, 0, 1, 1, 2, 4]
"""How often the body of a request is changed."""
_DEPTH_MAX = 6
_KNOWN: dict[str, list[Any]] = {
    "queue": QUEUES,
    "queues": QUEUES,
    "name": [*QUEUES, "nightly"],
    "task": ["send", "count"],
    "tenant": ["", "acme", "other"],
    "group": ["g", "h"],
    "key": ["k", "l"],
    "unique_key": ["u", "v"],
    "idempotency_key": ["i", "j"],
    "worker": ["w"],
    "cron": ["* * * * *", "0 0 29 2 *", "@daily", "x"],
    "timezone": ["UTC", "Europe/Berlin", "Mars/Base"],
    "state": ["queued", "dead", "nothing"],
    "cursor": ["", "x"],
    "after": ["", "1"],
}


class JobRequests:
    """Writes requests. What earlier answers said is in the pool."""

    def __init__(self, document: dict[str, Any], pool: Pool) -> None:
        self._schemas = document["components"]["schemas"]
        self._operations = [
            (method.upper(), path, described)
            for path, methods in document["paths"].items()
            for method, described in methods.items()
        ]
        self._pool = pool

    def request(self, rng: random.Random) -> Sent:
        """Make one request."""
        if rng.random() < 0.08:
            return self._elsewhere(rng)
        method, path, described = rng.choice(self._operations)
        if method == "DELETE" and rng.random() < 0.8:
            method, path, described = rng.choice(self._operations)
        query: list[tuple[str, str]] = []
        headers: list[tuple[str, str]] = []
        for parameter in described.get("parameters", ()):
            name, place = parameter["name"], parameter["in"]
            if place == "path":
                value = str(self._value(rng, name, parameter["schema"], 0))
                value = text(rng) if rng.random() < 0.1 else value
                path = path.replace("{" + name + "}", quote(value, safe="")[:3_000] or "x")
            elif rng.random() < 0.4:
                value = text(rng) if rng.random() < 0.3 else str(self._value(rng, name, parameter["schema"], 0))
                if place == "query":
                    query.append((name, value))
                else:
                    headers.append((name, "".join(c for c in value if " " <= c <= "~")[:500]))
        if rng.random() < 0.05:
            query.append((text(rng), text(rng)))
        content = described.get("requestBody", {}).get("content", {})
        body = b""
        if content:
            [media] = content.values()
            value = self._value(rng, "", media["schema"], 0)
            body = as_json(rng, without_waits(mutate(rng, value, rng.choice(CHANGES))))
            headers.append(("Content-Type", "application/json"))
        elif rng.random() < 0.05:
            body = as_json(rng, {})
        kinds = {kind for answer in described["responses"].values() for kind in answer.get("content", {})}
        target = path + (f"?{urlencode(query)[:20_000]}" if query else "")
        return Sent(
            "v1", method, target, headers, body, streamed=bool(kinds & {"text/event-stream", "application/x-ndjson"})
        )

    def _elsewhere(self, rng: random.Random) -> Sent:
        path = rng.choice(PLACES)
        if rng.random() < 0.4:
            name = text(rng) if rng.random() < 0.3 else rng.choice(PEEKED)
            values = ["1", "10", "x", "", "visible", "us-east-1", text(rng)]
            names = rng.sample(["limit", "after", "state", "region", "account"], rng.choice([0, 1, 2]))
            query = urlencode({each: rng.choice(values) for each in names})
            path = f"/v1/queues/{quote(name, safe='')[:2_000] or 'x'}/messages?{query}"
        return Sent("places", rng.choice(["GET", "GET", "POST", "HEAD", "PUT"]), path, [])

    def _value(  # noqa: C901, PLR0911 - a case for each kind of schema
        self, rng: random.Random, name: str, schema: dict[str, Any], depth: int
    ) -> Any:
        """Make a value of a schema, of the kind that its field's name suggests."""
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            return self._value(rng, name, rng.choice(schema["anyOf"]), depth)
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        match schema.get("type"):
            case "object" if "properties" in schema and depth < _DEPTH_MAX:
                required = schema.get("required", ())
                return {
                    member: self._value(rng, member, described, depth + 1)
                    for member, described in schema["properties"].items()
                    if member in required or rng.random() < 0.3
                }
            case "object":
                return {}
            case "array":
                items = schema.get("items", {})
                return [self._value(rng, name, items, depth + 1) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
            case "integer" | "number":
                return self._number(rng, name, schema)
            case "boolean":
                return rng.random() < 0.5
            case "null":
                return None
            case "string":
                return self._text(rng, name)
        return rng.choice([None, 1, "payload", {"a": [1, "é"]}])

    def _number(self, rng: random.Random, name: str, schema: dict[str, Any]) -> Any:
        low, high = schema.get("minimum", 0), schema.get("maximum", 1_000)
        if "wait" in name:
            return rng.choice([0, 0, 0.01, -1, 10**9])
        return rng.choice([low, low + 1, low, high, low - 1, high + 1, min(high, low + rng.randrange(20))])

    def _text(self, rng: random.Random, name: str) -> str:
        pooled = self._pool.draw(rng, name) if rng.random() < 0.7 else None
        return pooled or rng.choice(_KNOWN.get(name, ["x", str(rng.randrange(20))]))
