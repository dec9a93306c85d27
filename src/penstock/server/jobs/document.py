"""The OpenAPI document, made of the same routes that are served."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.server.jobs.permissions import PERMISSIONS
from penstock.server.jobs.streaming import NDJSON
from penstock.wire.jobs.answers import Problem, StreamLine
from penstock.wire.jobs.problems import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.jobs.call import Route

_SCHEME = "token"
SECURITY_SCHEMES: dict[str, Any] = {
    _SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of the server's configuration file, with the scope that is named at each operation.",
    }
}
_REFERENCE = "#/components/schemas/{name}"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Schemas:
    """The shapes that routes take and answer, as JSON schemas."""

    def __init__(self, routes: Sequence[Route]) -> None:
        kinds: dict[type, None] = {Problem: None, StreamLine: None}
        for route in routes:
            for kind in (route.body, *route.answers.values()):
                if isinstance(kind, type):
                    kinds[kind] = None
        self._references, self.components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
        self._of = dict(zip(kinds, self._references, strict=True))

    def reference(self, kind: type) -> dict[str, Any]:
        """Point to a shape."""
        return self._of[kind]


def operation(route: Route, schemas: Schemas, *, required: bool) -> dict[str, Any]:
    """Describe a route, for the framework to take over as it is; `required` says whether it takes a token at all."""
    needed: dict[str, list[str]] = {_SCHEME: [PERMISSIONS[route.name].scope.value]}
    described: dict[str, Any] = {
        "security": [needed] if required else [needed, {}],
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                for name in _PLACEHOLDER.findall(route.path)
            ),
            *(
                {
                    "name": parameter.name,
                    "in": parameter.place,
                    "required": False,
                    "description": parameter.description,
                    "schema": parameter.schema,
                }
                for parameter in route.parameters
                # OpenAPI has a place of its own for what an answer is like.
                if parameter.name != "Accept"
            ),
        ],
        "responses": {
            **{str(status): _response(route, status, kind, schemas) for status, kind in route.answers.items()},
            "default": {
                "description": "What went wrong.",
                "content": {CONTENT_TYPE: {"schema": schemas.reference(Problem)}},
            },
        },
    }
    if route.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas.reference(route.body)}},
        }
    return described


def _response(route: Route, status: int, kind: type | None, schemas: Schemas) -> dict[str, Any]:
    if kind is None:
        return {"description": "Done."}
    content: dict[str, Any] = {"application/json": {"schema": schemas.reference(kind)}}
    if route.streamed is not None and status == 200:
        schema = schemas.reference(StreamLine) if route.streamed == NDJSON else {"type": "string"}
        content[route.streamed] = {"schema": schema}
    return {"description": route.summary, "content": content}
