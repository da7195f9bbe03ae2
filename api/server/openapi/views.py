"""Description of views of found plans, and of the page."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from .examples import PLAN_REPORT_EXAMPLE
from .parts import COMMON_STATUSES, REF, answer_docs, problem_docs

JOB_ID_EXAMPLE = "019a5c3e7d1f4b2a9c8d7e6f5a4b3c2d"
OTHER_ID_EXAMPLE = "019a5c40aa104c3bad9e8f706b5c4d3e"
TAG_HEADER = {
    "name": "If-None-Match",
    "in": "header",
    "description": "The ETag that is known: 304 if it is still that. Jobs that ended have one.",
    "schema": {"type": "string"},
    "example": '"0f1e2d3c"',
}
NOT_MODIFIED = {304: {"description": "It is what the client has."}}
TRACE_EXAMPLE = {"displayTimeUnit": "ms", "traceEvents": [{"ph": "X", "name": "forward"}]}
VIEW_EXAMPLE: dict[str, Any] = {
    "title": "gpt2 (124 M parameters), 64 x 1024 tokens a step, bf16, adamw",
    "plan_hash": PLAN_REPORT_EXAMPLE["plan_hash"],
    "feasible": True,
    "step_time_s": 0.0912,
    "figures": [{"name": "MFU", "value": "31.4 %", "note": "full attention; HFU 31.4 %"}],
    "keys": [{"path": "device.hbm", "kind": "bytes", "meaning": "memory a device"}],
}
COMPARISON_EXAMPLE: dict[str, Any] = {
    "speed": 1.12,
    "unit": "step",
    "whole_s": [0.0912, 0.0814],
    "terms": [{"term": "matmul", "first_s": 0.061, "second_s": 0.061, "by_s": 0.0}],
    "memory": [],
    "questions": [],
    "decisions": [{"axis": "tp", "first": "2", "second": "1"}],
    "view": {"verdict": "second does 12.0 % more tokens a second than first"},
}


def id_parameter(name: str, example: str = JOB_ID_EXAMPLE) -> dict[str, Any]:
    """Job id in a path."""
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": "As in the Location of the answer to POST.",
        "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "example": example,
    }


TARGET_PARAMETER = {
    "name": "target",
    "in": "path",
    "required": True,
    "description": "html: one page that loads nothing; plan: the Plan document; svg: a picture.",
    "schema": {"enum": ["html", "plan", "svg"]},
    "example": "plan",
}
VIEW_PROBLEMS = problem_docs(*COMMON_STATUSES, 404, 409, 422, 429, 503)


HTML = {
    "text/html": {"schema": {"$ref": REF.format(model="Html")}, "example": "<!doctype html>"},
}


VIEW_DOCS: dict[str, dict[str, Any]] = {
    "/trace": {
        "operation_id": "tracePlan",
        "summary": "The timeline of the plan that was found, for ui.perfetto.dev.",
        "openapi_extra": {"parameters": [id_parameter("job_id"), TAG_HEADER]},
        "responses": {
            **answer_docs("Trace", "Trace events.", TRACE_EXAMPLE),
            **NOT_MODIFIED,
            **VIEW_PROBLEMS,
        },
    },
    "/view": {
        "operation_id": "viewPlan",
        "summary": "The plan that was found as a page shows it: words, and shares for bars.",
        "openapi_extra": {"parameters": [id_parameter("job_id"), TAG_HEADER]},
        "responses": {
            **answer_docs("PlanView", "Words and shares.", VIEW_EXAMPLE),
            **NOT_MODIFIED,
            **VIEW_PROBLEMS,
        },
    },
    "/compare/{other_id}": {
        "operation_id": "comparePlans",
        "summary": "Two plans that were found, side by side, term by term.",
        "openapi_extra": {
            "parameters": [
                id_parameter("job_id"),
                id_parameter("other_id", OTHER_ID_EXAMPLE),
                TAG_HEADER,
            ]
        },
        "responses": {
            **answer_docs("Comparison", "What differs, in figures and words.", COMPARISON_EXAMPLE),
            **NOT_MODIFIED,
            **VIEW_PROBLEMS,
        },
    },
    "/export/{target}": {
        "operation_id": "exportPlan",
        "summary": "The plan that was found as a file to take away.",
        "openapi_extra": {"parameters": [id_parameter("job_id"), TARGET_PARAMETER, TAG_HEADER]},
        "response_class": Response,
        "responses": {
            200: {
                "description": "The file.",
                "content": {
                    "application/json": {
                        "schema": {"$ref": REF.format(model="Plan")},
                        "example": PLAN_REPORT_EXAMPLE["plan"],
                    },
                    **HTML,
                    "image/svg+xml": {
                        "schema": {"$ref": REF.format(model="Picture")},
                        "example": "<svg xmlns='http://www.w3.org/2000/svg'/>",
                    },
                },
            },
            **NOT_MODIFIED,
            **VIEW_PROBLEMS,
        },
    },
}
PAGE_DOCS: dict[str, Any] = {
    "operation_id": "openPage",
    "summary": "The page for people, in a browser.",
    "openapi_extra": {"parameters": [TAG_HEADER]},
    "response_class": Response,
    "responses": {
        200: {"description": "The page.", "content": HTML},
        **NOT_MODIFIED,
        **problem_docs(*COMMON_STATUSES),
    },
}
API_PAGE_DOCS: dict[str, Any] = {
    **PAGE_DOCS,
    "operation_id": "openApiPage",
    "summary": "What is described here, as a page.",
}


def view_schemas() -> dict[str, Any]:
    """Components of plan views."""
    view: dict[str, Any] = {
        "title": {"type": "string"},
        "plan_hash": {"type": "string"},
        "feasible": {"type": "boolean"},
        "step_time_s": {"type": "number"},
        "figures": _rows("What is looked for first: name, value, note."),
        "keys": _rows("What a what-if may change of it: path, kind, meaning."),
    }
    comparison: dict[str, Any] = {
        "speed": {"type": "number", "description": "Tokens a second, second over first."},
        "unit": {"enum": ["step", "million_tokens"]},
        "whole_s": {"type": "array", "items": {"type": "number"}},
        **{name: _rows(text) for name, text in _COMPARED.items()},
        "view": {"type": "object", "description": "The same in words, and shares for bars."},
    }
    return {
        "PlanView": _object(view, "The words may change between releases."),
        "Comparison": _object(comparison, "Beside both reports: first, second."),
        "Plan": {"type": "object", "description": "The decisions; a document to keep and run."},
        "Html": {"type": "string", "description": "A page."},
        "Picture": {"type": "string", "description": "An SVG."},
        "Trace": _object({"traceEvents": _rows("Spans and names of streams.")}, ""),
    }


_COMPARED = {
    "terms": "Seconds by term; the sums are whole_s.",
    "memory": "Bytes by term on the fullest device of each.",
    "questions": "In what the two were asked different things.",
    "decisions": "What the second plan decides otherwise.",
}


def _rows(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object"}, "description": description}


def _object(properties: dict[str, Any], description: str) -> dict[str, Any]:
    made = {"type": "object", "properties": properties, "required": list(properties)}
    return {**made, "description": description} if description else made
