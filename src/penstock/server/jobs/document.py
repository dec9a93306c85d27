"""The OpenAPI document, and the page for people, made of the same routes that are served."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import __version__
from penstock.server.jobs.permissions import PERMISSIONS
from penstock.server.jobs.reference import CONTENT_TYPE as HTML
from penstock.server.jobs.reference import POLICY, reference_page
from penstock.server.jobs.streaming import NDJSON
from penstock.wire.http import Response
from penstock.wire.jobs.answers import Problem, StreamLine
from penstock.wire.jobs.problems import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.jobs.call import Route

TITLE = "Penstock jobs"
DOCUMENT = "/openapi.json"
REFERENCE = "/docs"
PAGES = frozenset({DOCUMENT, REFERENCE})
PAGE_METHODS = ("GET", "HEAD")
_SCHEME = "token"
_SECURITY_SCHEMES: dict[str, Any] = {
    _SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of the server's configuration file, with the scope that is named at each operation.",
    }
}
_SCHEMA = "#/components/schemas/{name}"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Schemas:
    """The shapes that routes take and answer, as JSON schemas."""

    def __init__(self, routes: Sequence[Route]) -> None:
        kinds: dict[type, None] = {Problem: None, StreamLine: None}
        for route in routes:
            for kind in (route.body, *route.answers.values()):
                if isinstance(kind, type):
                    kinds[kind] = None
        self._references, self.components = msgspec.json.schema_components(kinds, ref_template=_SCHEMA)
        self._of = dict(zip(kinds, self._references, strict=True))

    def reference(self, kind: type) -> dict[str, Any]:
        """Point to a shape."""
        return self._of[kind]


class Documents:
    """What `/openapi.json` and `/docs` answer, made when it is first asked for.

    `required` says whether requests need a token.
    """

    def __init__(self, routes: Sequence[Route], *, required: bool) -> None:
        self._routes = routes
        self._required = required

    def page(self, path: str) -> Response:
        """Answer with one of `PAGES`."""
        if path == REFERENCE:
            return Response(headers=[("content-type", HTML), POLICY], body=self._reference)
        return Response(headers=[("content-type", "application/json")], body=self._document)

    @cached_property
    def _described(self) -> dict[str, Any]:
        schemas = Schemas(self._routes)
        paths: dict[str, dict[str, Any]] = {}
        for route in self._routes:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, required=self._required)
        return {
            "openapi": "3.1.0",
            "info": {"title": TITLE, "version": __version__},
            "paths": paths,
            "components": {"schemas": schemas.components, "securitySchemes": _SECURITY_SCHEMES},
        }

    @cached_property
    def _document(self) -> bytes:
        return msgspec.json.encode(self._described)

    @cached_property
    def _reference(self) -> bytes:
        return reference_page(self._described).encode()


def _operation(route: Route, schemas: Schemas, *, required: bool) -> dict[str, Any]:
    """Describe a route; `required` says whether it takes a token at all."""
    scope = PERMISSIONS[route.name].scope.value
    needed: dict[str, list[str]] = {_SCHEME: [scope]}
    described: dict[str, Any] = {
        "tags": [scope],
        "summary": route.summary,
        "operationId": route.name,
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
