"""The OpenAPI document as a page for people: plain HTML, with nothing to run and nothing to fetch."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.wire.jobs.problems import PREFIX, kinds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONTENT_TYPE = "text/html; charset=utf-8"
POLICY = ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
_SCOPES = {
    "enqueue": "Put jobs in",
    "work": "Work on jobs",
    "read": "Look",
    "admin": "Operate",
}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
}
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #0a6a8a; }
@media (prefers-color-scheme: dark) { :root { --accent: #6cc5e4; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
h3 { margin-top: 2.2rem; font-weight: 600; } code, .method { font-family: ui-monospace, monospace; font-size: .92em; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
.method { display: inline-block; min-width: 4.2em; font-weight: 700; } h3 .method { color: var(--accent); }
nav ul { list-style: none; padding: 0; columns: 26rem 2; } nav li { break-inside: avoid; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; } caption { text-align: left; font-weight: 600; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th { font-weight: 500; background: var(--soft); } td { overflow-wrap: anywhere; }
td:first-child { white-space: nowrap; } .about { opacity: .75; }
"""


def reference_page(document: dict[str, Any]) -> str:
    """Write the page."""
    title = escape(document["info"]["title"])
    operations = [
        (method.upper(), path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    ]
    sections = [
        (scope, heading, [each for each in operations if scope in each[2]["tags"]])
        for scope, heading in _SCOPES.items()
    ]
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{title} <small>{escape(document['info']['version'])}</small></h1>",
        "<p>Bodies are JSON, and instants are milliseconds since the epoch.",
        '<a href="/openapi.json">openapi.json</a> is the same for programs.',
        '<a href="#schemas">Schemas</a> and <a href="#problems">problems</a> are at the end.</p>',
        "<nav>",
        *(_contents(heading, own) for _, heading, own in sections),
        "</nav>",
    ]
    for scope, heading, own in sections:
        parts.append(f'<h2>{heading}</h2><p class="about">With a token of the scope <code>{scope}</code>.</p>')
        parts += [_operation(method, path, described) for method, path, described in own]
    parts.append('<h2 id="schemas">Schemas</h2>')
    parts += [_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    parts += ['<h2 id="problems">Problems</h2>', _problems(), "</body></html>"]
    return "\n".join(parts)


def _contents(heading: str, operations: Sequence[tuple[str, str, dict[str, Any]]]) -> str:
    lines = [
        f'<li><a href="#{described["operationId"]}"><span class="method">{method}</span> {escape(path)}</a></li>'
        for method, path, described in operations
    ]
    return f"<p><b>{heading}</b></p><ul>{''.join(lines)}</ul>"


def _operation(method: str, path: str, described: dict[str, Any]) -> str:
    parts = [
        f'<section id="{described["operationId"]}">',
        f'<h3><span class="method">{method}</span> <code>{escape(path)}</code></h3>',
        f"<p>{_text(described['summary'])}</p>",
    ]
    parameters = [
        (
            f"<code>{escape(each['name'])}</code>",
            escape(each["in"]),
            _type(each["schema"]),
            _text(each.get("description", "")),
        )
        for each in described.get("parameters", ())
    ]
    parts.append(_table("Parameters", ("name", "in", "type", ""), parameters))
    body = described.get("requestBody")
    if body is not None:
        parts.append(f"<p><b>Body</b> {_contents_of(body['content'])}</p>")
    answers = [
        (escape("problem" if status == "default" else status), _contents_of(answer.get("content", {})))
        for status, answer in described["responses"].items()
    ]
    parts.append(_table("Answers", ("status", "body"), answers))
    return "".join(parts) + "</section>"


def _contents_of(content: dict[str, Any]) -> str:
    told = [f'{_type(each["schema"])} <span class="about">{escape(kind)}</span>' for kind, each in content.items()]
    return "<br>".join(told) or "none"


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (
            f"<code>{escape(field)}</code>",
            _type(each),
            "required" if field in required else _default(each),
        )
        for field, each in schema.get("properties", {}).items()
    ]
    about = f"<p>{_text(schema.get('description', ''))}</p>"
    listed = _table("", ("field", "type", "if left out"), rows) if rows else f"<p>{_type(schema)}</p>"
    return f'<section id="schema-{escape(name)}"><h3>{escape(name)}</h3>{about}{listed}</section>'


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return ""
    return f"<code>{escape(msgspec.json.encode(schema['default']).decode())}</code>"


def _type(schema: dict[str, Any]) -> str:
    """Write what a value may be."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        told = " or ".join(f"<code>{escape(msgspec.json.encode(each).decode())}</code>" for each in schema["enum"])
    elif schema.get("type") == "array":
        items = schema.get("items", {})
        told = f"array of {_type(items)}" if isinstance(items, dict) else "array"
    elif isinstance(schema.get("additionalProperties"), dict):
        told = f"object of {_type(schema['additionalProperties'])}"
    else:
        told = escape(schema.get("type", "any JSON"))
    bounds = [each.format(_number(schema[name])) for name, each in _BOUNDS.items() if name in schema]
    if "pattern" in schema:
        bounds.append(f"<code>{escape(schema['pattern'])}</code>")
    return told + (f' <span class="about">{", ".join(bounds)}</span>' if bounds else "")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def _problems() -> str:
    rows = [(str(kind.status), f"<code>{PREFIX}{escape(kind.name)}</code>", escape(kind.title)) for kind in kinds()]
    return _table("", ("status", "type", "title"), rows)


def _table(caption: str, heads: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in heads)
    lines = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    told = f"<caption>{caption}</caption>" if caption else ""
    return f"<table>{told}<tr>{head}</tr>{''.join(lines)}</table>"


def _text(text: str) -> str:
    """Write a description, with `what stands between these` as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
