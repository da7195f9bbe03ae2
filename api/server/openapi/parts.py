"""Pieces of the service's own description: problems, answers, bodies, headers."""

from __future__ import annotations

from typing import Any

from ..problems import MEDIA_TYPE, TITLES, problem

REF = "#/components/schemas/{model}"
PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An RFC 9457 problem.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "maxItems": 20,
            "items": {
                "type": "object",
                "required": ["pointer", "msg"],
                "properties": {
                    "pointer": {"type": "string", "description": "A JSON pointer."},
                    "msg": {"type": "string"},
                },
            },
        },
    },
}
EARLY_STATUSES = (400, 408, 421, 431, 500, 503)
"""What is no HTTP, comes too slowly, is for another host, too large, too many: of every route."""
COMMON_STATUSES = (401, *EARLY_STATUSES)
COMPUTE_STATUSES = (413, 415, 422, 429)
PROBLEM_TEXT = {
    401: "send the header Authorization: Bearer TOKEN",
    421: "allowed: requests for this machine by its own name or address",
    422: "/workload/seq_len: allowed: a positive whole number, such as 4096; nearest: 4096",
}


def problem_docs(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses of these statuses, each with an example."""
    return {
        status: {
            "description": TITLES[status],
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": REF.format(model="Problem")},
                    "example": problem(status, PROBLEM_TEXT.get(status, TITLES[status])),
                }
            },
        }
        for status in sorted(set(statuses))
    }


def answer_docs(
    model: str, description: str, example: dict[str, Any], status: int = 200
) -> dict[int | str, Any]:
    """Response of JSON."""
    content = {"schema": {"$ref": REF.format(model=model)}, "example": example}
    return {status: {"description": description, "content": {"application/json": content}}}


def with_links(response: dict[int | str, Any], parameter: str, key: str, *operations: str) -> Any:
    """Link an :func:`answer_docs` response to other operations.

    ``parameter`` of the ``operations`` takes the value at the answer's ``key``.
    """
    parameters = {parameter: f"$response.body#/{key}"}
    links = {name: {"operationId": name, "parameters": parameters} for name in operations}
    return {status: {**content, "links": links} for status, content in response.items()}


def body_docs(model: str, example: dict[str, Any]) -> dict[str, Any]:
    """JSON request body."""
    content = {"schema": {"$ref": REF.format(model=model)}, "example": example}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


PREFER_HEADER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "description": "wait=N: seconds (up to 30) to wait for the answer before it is 202. Without "
    "it, a size that needs no search is waited for, unless it is respond-async.",
    "schema": {"type": "string"},
    "example": "wait=20",
}
