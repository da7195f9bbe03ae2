"""Errors as RFC 9457 problem documents, never repeating input."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from ...spec.codec import dump_compact
from ...spec.report.report import LEADING_KEYS

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 20
MAX_TEXT, MAX_WHOLE_TEXT = 300, 1200
"""Characters of a text; of one that lists every value that is allowed."""
TITLES = {
    400: "The request cannot be read",
    401: "A token is needed",
    404: "There is no such resource",
    405: "The resource has no such method",
    409: "The resource is not so far",
    408: "The request took too long to arrive",
    413: "The request is too large",
    415: "The request is not JSON",
    421: "The request is for another host",
    422: "The request cannot be answered as it is",
    431: "The headers are too large",
    499: "The request was cancelled",
    429: "Too many requests at once",
    500: "The service failed",
    503: "The service has no time for this now",
    507: "The token has no room for more jobs",
}
INFEASIBLE, INVALID, NOT_BUILT, TOO_LARGE = "infeasible", "invalid", "not-built", "too-large"


def problem(
    status: int,
    detail: str,
    kind: str | None = None,
    errors: Sequence[Mapping[str, str]] = (),
    most: int = MAX_TEXT,
) -> dict[str, Any]:
    """Build a problem document.

    ``kind`` is the sort of problem, where the status alone does not say. Of ``errors``, ``pointer``
    (JSON pointer) and ``msg`` of each fault, the first 20 are kept. Texts are cut at ``most``
    characters.
    """
    document: dict[str, Any] = {
        "type": "about:blank" if kind is None else f"urn:shardwright:problem:{kind}",
        "title": TITLES.get(status, "The request failed"),
        "status": status,
        "detail": _clipped(detail, most),
    }
    if errors:
        document["errors"] = [
            {"pointer": _clipped(item["pointer"]), "msg": _clipped(item["msg"], most)}
            for item in errors[:MAX_ERRORS]
        ]
    return document


def _clipped(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def encode(document: Any) -> bytes:
    """Encode a document as JSON, odd characters escaped."""
    return json.dumps(document, sort_keys=True, allow_nan=False).encode("ascii")


def encode_report(document: Mapping[str, Any]) -> bytes:
    """Encode a report as JSON that begins with plan, prediction and search."""
    return dump_compact(document, LEADING_KEYS).encode("ascii")


def problem_response(
    status: int,
    detail: str,
    kind: str | None = None,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, str]] = (),
) -> Response:
    """Problem document as a response."""
    body = encode(problem(status, detail, kind, errors))
    return Response(body, status, dict(headers or {}), media_type=MEDIA_TYPE)
