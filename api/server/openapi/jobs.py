"""Description of jobs: routes, documents, events."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from .examples import PLAN_EXAMPLE, PLAN_REPORT_EXAMPLE
from .examples_what_if import WHAT_IF_ANSWER_EXAMPLE, WHAT_IF_EXAMPLE
from .parts import (
    COMMON_STATUSES,
    COMPUTE_STATUSES,
    PREFER_HEADER,
    REF,
    answer_docs,
    body_docs,
    problem_docs,
    with_links,
)
from .sizes import SIZE_ANSWER_EXAMPLE, SIZE_EXAMPLE
from .views import JOB_ID_EXAMPLE, TAG_HEADER, id_parameter

NEW_JOB_EXAMPLE: dict[str, Any] = {
    "id": JOB_ID_EXAMPLE,
    "kind": "plan",
    "state": "running",
    "attempt": 1,
    "deadline_s": 60.0,
    "created_at": "2026-11-23T01:00:00.000+00:00",
    "started_at": "2026-11-23T01:00:00.060+00:00",
    "finished_at": None,
    "cancel_asked_at": None,
    "progress": {"attempt": 1, "candidates": 12, "shapes_seen": 4, "shapes": 160, "seconds": 0.8},
}
SUMMARY = tuple(name for name in NEW_JOB_EXAMPLE if name != "progress")
BEST_EXAMPLE: dict[str, Any] = {
    "plan": PLAN_REPORT_EXAMPLE["plan"],
    "plan_hash": PLAN_REPORT_EXAMPLE["plan_hash"],
    "shape": "tp 1, pp 1, dp 8, zero1, micro-batch 8 x 1",
    "step_time_s": 9.89,
    "lower_bound_s": 6.08,
    "gap": 0.6266,
    "candidates": 12,
    "seconds": 0.8,
}
ASKED_EXAMPLE = {"model": "gpt2", "cluster": "8xH100", "global_batch": 64, "seq_len": 1024,
                 "stack": None, "calibration": None, "oom_risk": None,
                 "pins": ["tp=1"], "optimizer": "adamw"}  # fmt: skip
JOB_EXAMPLE = {**NEW_JOB_EXAMPLE, "asked": ASKED_EXAMPLE, "best": BEST_EXAMPLE, "answer": None,
               "problem": None}  # fmt: skip
PAGE_EXAMPLE = {
    "items": [{**{name: NEW_JOB_EXAMPLE[name] for name in SUMMARY}, "asked": ASKED_EXAMPLE}],
    "next_cursor": None,
}
EVENTS_EXAMPLE = (
    'event: progress\ndata: {"attempt": 1, "candidates": 12, "seconds": 0.8}\nid: 3\n\n'
    'event: done\ndata: {"state": "done"}\nid: 4\n\n'
)
KIND_WORDS = {
    "plan": ("Plan", "plan"),
    "what-if": ("WhatIf", "question"),
    "size": ("Size", "size"),
    "run": ("Run", "run"),
}
RUN_EXAMPLE = {"plan_id": JOB_ID_EXAMPLE, "steps": 20}
RUN_ANSWER_EXAMPLE: dict[str, Any] = {
    "plan_hash": PLAN_REPORT_EXAMPLE["plan_hash"],
    "measured": {"step_time_s": 0.21, "losses": [6.9, 6.7]},
    "predicted": {"step_time_s": 0.2},
}
ID_PARAMETER = id_parameter("job_id")
KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and body again are the same job; another body is a 422.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
    "example": "b5a1c2",
}
LAST_EVENT = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "Go on after this event.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,9}$"},
    "example": "3",
}
QUERY = [
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "example": 20,
    },
    {
        "name": "cursor",
        "in": "query",
        "description": "next_cursor of the page before.",
        "schema": {"type": "string"},
    },
]
FORGET = {
    "name": "forget",
    "in": "query",
    "description": "Drop an ended job with its answer, and free its room.",
    "schema": {"enum": ["true", "false"], "type": "string", "default": "false"},
    "example": "true",
}
READ_STATUSES = (*COMMON_STATUSES, 404)


def job_docs(kind: str) -> dict[str, dict[str, Any]]:
    """Describe every route over jobs of a kind, by method and path."""
    name, word = KIND_WORDS[kind]
    return {
        "POST /": _create_docs(kind, name),
        "GET /": {
            "operation_id": f"list{name}s",
            "summary": f"The {word}s that were asked for, the newest first.",
            "openapi_extra": {"parameters": QUERY},
            "responses": {
                **answer_docs("JobPage", "A page.", PAGE_EXAMPLE),
                **problem_docs(*COMMON_STATUSES, 422),
            },
        },
        "GET /{job_id}": {
            "operation_id": f"get{name}",
            "summary": f"A {word}: its state, its progress, its answer.",
            "openapi_extra": {"parameters": [ID_PARAMETER, TAG_HEADER]},
            "responses": {
                **answer_docs("Job", "The job.", JOB_EXAMPLE),
                304: {"description": "It is what the client has."},
                **problem_docs(*READ_STATUSES),
            },
        },
        "DELETE /{job_id}": {
            "operation_id": f"cancel{name}",
            "summary": f"Cancel a {word}; its best answer so far is kept.",
            "status_code": 202,
            "openapi_extra": {"parameters": [ID_PARAMETER, FORGET]},
            "responses": {
                **answer_docs("NewJob", "It ends.", NEW_JOB_EXAMPLE, 202),
                204: {"description": "It has ended already; with forget it is gone now."},
                **problem_docs(*READ_STATUSES, 422),
            },
        },
        "GET /{job_id}/events": _events_docs(name, word),
    }


def _create_docs(kind: str, name: str) -> dict[str, Any]:
    bodies = {
        "plan": PLAN_EXAMPLE,
        "what-if": WHAT_IF_EXAMPLE,
        "size": SIZE_EXAMPLE,
        "run": RUN_EXAMPLE,
    }
    answers = {
        "plan": answer_docs("PlanReport", "The best plan, in time.", PLAN_REPORT_EXAMPLE),
        "what-if": answer_docs("WhatIf", "Both answers, in time.", WHAT_IF_ANSWER_EXAMPLE),
        "size": answer_docs("Size", "The curve or the ways, in time.", SIZE_ANSWER_EXAMPLE),
        "run": answer_docs("RunReport", "What was measured, in time.", RUN_ANSWER_EXAMPLE),
    }
    summaries = {
        "plan": "Search for the best plan of a model on a cluster, the simplest as good.",
        "what-if": "Price a plan in changed settings, as it is and planned anew.",
        "size": "Say how many devices a training needs, or how long fine-tunings take.",
        "run": "Run a plan on the service's machine; only with plan serve --allow-execute.",
    }
    new = answer_docs("NewJob", "A job; its Location tells more.", NEW_JOB_EXAMPLE, 202)
    next_ones = [f"{verb}{name}" for verb in ("get", "cancel", "watch")]
    next_ones += ["tracePlan", "viewPlan"] if kind == "plan" else []
    accepted = with_links(new, "job_id", "id", *next_ones)
    return {
        "operation_id": f"create{name}",
        "summary": summaries[kind],
        "status_code": 202,
        "openapi_extra": {
            **body_docs(f"{name}Body", bodies[kind]),
            "parameters": [PREFER_HEADER, KEY_HEADER],
        },
        "responses": {
            **answers[kind],
            **accepted,
            **problem_docs(*COMMON_STATUSES, *COMPUTE_STATUSES, 507),
        },
    }


def _events_docs(name: str, word: str) -> dict[str, Any]:
    content = {"schema": {"$ref": REF.format(model="Events")}, "example": EVENTS_EXAMPLE}
    return {
        "operation_id": f"watch{name}",
        "summary": f"What the work on a {word} says, as server-sent events.",
        "openapi_extra": {"parameters": [ID_PARAMETER, LAST_EVENT]},
        "response_class": Response,
        "responses": {
            200: {
                "description": "progress, best, row, curve and at last done.",
                "content": {"text/event-stream": content},
            },
            204: {"description": "There is nothing after that event."},
            **problem_docs(*READ_STATUSES, 422, 429),
        },
    }


REQUEST_SCHEMA = {
    "type": ["object", "null"],
    "description": "What was asked for: model, cluster, the workload's and the constraints' keys, "
    "stack, calibration, objective, prefer; null where that was a document or not given, and in a "
    "list where the body was long; model_name is the name in a model's document. Null for a "
    "question, a size or a run.",
}


def job_schemas() -> dict[str, Any]:
    """Every component that has to do with jobs."""
    time = {"type": ["string", "null"], "format": "date-time"}
    summary: dict[str, Any] = {
        "id": {"type": "string"},
        "kind": {"enum": ["plan", "what-if", "size", "run"]},
        "state": {"enum": ["queued", "running", "done", "failed", "cancelled"]},
        "attempt": {"type": "integer", "description": "More than one where a worker died."},
        "deadline_s": {"type": "number"},
        **dict.fromkeys(("created_at", "started_at", "finished_at", "cancel_asked_at"), time),
    }
    progress = {"type": ["object", "null"], "description": "As in the last event."}
    whole = {
        "asked": REQUEST_SCHEMA,
        "best": {"type": ["object", "null"], "description": "The best plan so far, with its gap."},
        "answer": {
            "type": ["object", "null"],
            "description": "PlanReport, WhatIf, Size or RunReport.",
        },
        "problem": {"type": ["object", "null"], "description": "Why it failed: a Problem."},
    }
    return {
        "JobSummary": _object({**summary, "asked": REQUEST_SCHEMA}),
        "NewJob": _object({**summary, "progress": progress}),
        "Job": _object({**summary, "progress": progress, **whole}),
        "JobPage": _object(
            {
                "items": {"type": "array", "items": {"$ref": REF.format(model="JobSummary")}},
                "next_cursor": {"type": ["string", "null"]},
            }
        ),
        "RunReport": _object(
            {
                "plan_hash": {"type": "string"},
                "measured": {"type": "object"},
                "predicted": {"type": "object"},
            }
        ),
        "Events": {"type": "string", "description": "Events with event, data (JSON) and id."},
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
