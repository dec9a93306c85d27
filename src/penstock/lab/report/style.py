"""The one stylesheet of reports, inlined in each, and the policy under which a report may be served."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

SPRITE = """<svg class="sprite" aria-hidden="true">
<symbol id="m-send" viewBox="0 0 12 12"><circle cx="6" cy="6" r="4" fill="currentColor"/></symbol>
<symbol id="m-lease" viewBox="0 0 12 12"><rect x="1.75" y="1.75" width="8.5" height="8.5" rx="1.5" fill="none" stroke="currentColor" stroke-width="1.5"/></symbol>
<symbol id="m-lease-off" viewBox="0 0 12 12"><rect x="1.75" y="1.75" width="8.5" height="8.5" rx="1.5" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2 1.5"/></symbol>
<symbol id="m-effect" viewBox="0 0 12 12"><path d="M6 .4 11.6 6 6 11.6.4 6z" fill="currentColor"/></symbol>
<symbol id="m-refused" viewBox="0 0 12 12"><path d="M6 1.4 10.6 6 6 10.6 1.4 6z" fill="none" stroke="currentColor" stroke-width="1.4"/></symbol>
<symbol id="m-crash" viewBox="0 0 12 12"><path d="M2 2l8 8M10 2l-8 8" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round"/></symbol>
<symbol id="m-again" viewBox="0 0 12 12"><path d="M10.1 6.6A4.2 4.2 0 1 1 9 3.1l1 1M10.2 1.4v2.8H7.4" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round"/></symbol>
<symbol id="m-delete" viewBox="0 0 12 12"><path d="M1.8 6.6l2.9 2.9L10.2 3" fill="none" stroke="currentColor" stroke-width="2.1" stroke-linecap="round" stroke-linejoin="round"/></symbol>
<symbol id="m-dead" viewBox="0 0 12 12"><path fill="currentColor" fill-rule="evenodd" d="M6 .8a4.7 4.7 0 0 0-4.7 4.6c0 1.5.8 2.7 2 3.4v2.4h1.5V9.9h.7v1.3h1V9.9h.7v1.3h1.5V8.8c1.2-.7 2-1.9 2-3.4A4.7 4.7 0 0 0 6 .8zM4.1 4.5a1.2 1.2 0 1 1 0 2.4 1.2 1.2 0 0 1 0-2.4zm3.8 0a1.2 1.2 0 1 1 0 2.4 1.2 1.2 0 0 1 0-2.4z"/></symbol>
<symbol id="m-unknown" viewBox="0 0 12 12"><path d="M3.6 4a2.4 2.4 0 1 1 3.5 2.1c-.8.4-1.1.8-1.1 1.6M6 10.2v.1" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linecap="round"/></symbol>
<symbol id="m-halo" viewBox="0 0 12 12"><circle class="halo" cx="6" cy="6" r="6"/></symbol>
<symbol id="m-cell" viewBox="0 0 12 12"><rect x=".75" y=".75" width="10.5" height="10.5" rx="1.5" fill="currentColor" fill-opacity=".75"/></symbol>
<symbol id="m-cell-open" viewBox="0 0 12 12"><rect x="1.25" y="1.25" width="9.5" height="9.5" rx="1.5" fill="none" stroke="currentColor" stroke-width="1.3"/></symbol>
<symbol id="m-cell-tall" viewBox="0 0 12 12"><rect x="3.4" y="1" width="5.2" height="10" rx="1" fill="none" stroke="currentColor" stroke-width="1"/></symbol>
<marker id="tip-ink" viewBox="0 0 8 8" refX="6.5" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M2 1.2 6.5 4 2 6.8"/></marker>
<marker id="tip-dead" viewBox="0 0 8 8" refX="6.5" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="tip dead" d="M2 1.2 6.5 4 2 6.8"/></marker>
<marker id="tip-done" viewBox="0 0 8 8" refX="6.5" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="tip done" d="M2 1.2 6.5 4 2 6.8"/></marker>
<marker id="tip-retrying" viewBox="0 0 8 8" refX="6.5" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="tip retrying" d="M2 1.2 6.5 4 2 6.8"/></marker>
</svg>"""  # noqa: E501 - paths read no better when they are broken

BRAND = (
    '<svg viewBox="0 0 18 18" aria-hidden="true"><path d="M1.5 3.5h5.2c2.6 0 2.3 7 5 7h4.8"/>'
    '<path d="M1.5 8h2.7c2.6 0 2.3 7 5 7h7.3"/></svg>'
)


@cache
def stylesheet() -> str:
    """Return the text between the `style` tags."""
    here = resources.files("penstock.lab.report")
    return "\n" + "\n".join(here.joinpath(name).read_text("utf-8") for name in ("penstock.css", "lab.css"))


@cache
def content_security_policy() -> str:
    """Return the policy under which reports can be served: their own style, shapes as data, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(stylesheet().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def document(title: str, body: str) -> str:
    """Wrap a page. `title` and `body` are markup, escaped by whoever wrote them."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{stylesheet()}</style>\n"
        f'<link rel="icon" href="data:,">\n</head>\n<body>\n{SPRITE}\n{body}\n</body>\n</html>\n'
    )
