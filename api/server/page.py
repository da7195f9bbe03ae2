"""The page: an index and its files, each at its own path.

They are read when the service starts; nothing in a request is a path here.
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from ..html.page_file import web_text
from .jobs.routes.replies import conditional
from .openapi.views import PAGE_DOCS

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
MEDIA_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
FILES = (
    "icon.svg",
    "style.css",
    "app.css",
    "dom.js",
    "report.js",
    "timeline.js",
    "service.js",
    "cluster.js",
    "question.js",
    "watching.js",
    "what_if.js",
    "compare.js",
    "answer.js",
    "history.js",
    "app.js",
)
"""What index.html names."""


def add_page(app: FastAPI) -> None:
    """Add the page's routes."""
    _add(app, "/", "index.html", "text/html", PAGE_DOCS)
    for name in FILES:
        kind = MEDIA_TYPES[name.rpartition(".")[2]]
        _add(app, f"/page/{name}", name, kind, {"include_in_schema": False})


def _add(app: FastAPI, path: str, name: str, kind: str, docs: dict[str, object]) -> None:
    body = web_text(name).encode()

    async def read(request: Request) -> Response:
        return conditional(request, body, True, f"{kind}; charset=utf-8", HEADERS)

    app.add_api_route(path, read, methods=["GET"], **docs)  # type: ignore[arg-type]
