"""The pages: an index and its files, each at its own path, and the API's page.

Files are read when the service starts; nothing in a request is a path here.
"""

from __future__ import annotations

import re

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from ..html.openapi_page import openapi_page
from ..html.page_file import web_text
from .gate import API_PATH
from .jobs.routes.replies import conditional
from .openapi.views import API_PAGE_DOCS, PAGE_DOCS

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
HOST = re.compile(r"[\w.:\[\]-]{1,255}", re.ASCII)
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
    "size.js",
    "diagnose.js",
    "app.js",
)
"""What index.html names."""


def add_page(app: FastAPI) -> None:
    """Add the page's routes."""
    _add(app, "/", "index.html", "text/html", PAGE_DOCS)
    for name in FILES:
        kind = MEDIA_TYPES[name.rpartition(".")[2]]
        _add(app, f"/page/{name}", name, kind, {"include_in_schema": False})

    _add_api_page(app)


def _add_api_page(app: FastAPI) -> None:
    kind = "text/html; charset=utf-8"

    async def read(request: Request) -> Response:
        host = request.headers.get("host", "")
        address = f"{request.url.scheme}://{host if HOST.fullmatch(host) else 'HOST'}"
        body = openapi_page(app.openapi(), address).encode()
        return conditional(request, body, True, kind, HEADERS)

    app.add_api_route(API_PATH, read, methods=["GET"], **API_PAGE_DOCS)


def _add(app: FastAPI, path: str, name: str, kind: str, docs: dict[str, object]) -> None:
    body = web_text(name).encode()

    async def read(request: Request) -> Response:
        return conditional(request, body, True, f"{kind}; charset=utf-8", HEADERS)

    app.add_api_route(path, read, methods=["GET"], **docs)  # type: ignore[arg-type]
