"""The service's own description: request types, answers, problems, an example each."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from ...spec.report import Assumption, Prediction, Provenance, SearchResult, Sensitivity
from .examples import (
    CLUSTERS_EXAMPLE,
    MODELS_EXAMPLE,
    PLAN_EXAMPLE,
    PLAN_REPORT_EXAMPLE,
    REPORT_EXAMPLE,
    SIMULATION_EXAMPLE,
)
from .examples_what_if import WHAT_IF_ANSWER_EXAMPLE, WHAT_IF_EXAMPLE
from .openapi_what_if import what_if_schemas
from .problems import MEDIA_TYPE, TITLES, problem
from .requests import PLAN_ADAPTER, SIMULATION_ADAPTER, WHAT_IF_ADAPTER

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
EVERYWHERE = (401, 421, 431, 500)
COMPUTING = (400, 408, 413, 415, 422, 429, 503)
PROBLEM_TEXT = {
    401: "send the header Authorization: Bearer TOKEN",
    421: "allowed: requests for this machine by its own name or address",
    422: "/workload/seq_len: allowed: a positive whole number, such as 4096; nearest: 4096",
}


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
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
        for status in sorted(statuses)
    }


def _answer(model: str, description: str, example: dict[str, Any]) -> dict[int | str, Any]:
    content = {"schema": {"$ref": REF.format(model=model)}, "example": example}
    return {200: {"description": description, "content": {"application/json": content}}}


def _body(model: str, example: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": {"$ref": REF.format(model=model)}, "example": example}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


PREFER_HEADER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "description": "wait=N: seconds (up to 30) in which to answer with the best plan so far.",
    "schema": {"type": "string"},
    "example": "wait=20",
}
HEALTH_DOCS: dict[str, Any] = {
    "operation_id": "health",
    "summary": "Whether the service runs.",
    "responses": {**_answer("Status", "It runs.", {"status": "ok"}), **_problems(421, 431, 500)},
}
READY_DOCS: dict[str, Any] = {
    "operation_id": "readiness",
    "summary": "Whether the service can compute.",
    "responses": {
        **_answer("Status", "It can.", {"status": "ready"}),
        **_problems(421, 431, 500, 503),
    },
}
CATALOGUE_DOCS: dict[str, dict[str, Any]] = {
    "models": {
        "operation_id": "listModels",
        "summary": "Models that have a name here.",
        "responses": {
            **_answer("Models", "Sizes and sources.", MODELS_EXAMPLE),
            **_problems(*EVERYWHERE),
        },
    },
    "clusters": {
        "operation_id": "listClusters",
        "summary": "Devices, nodes and fabrics that have a name here.",
        "responses": {
            **_answer("Clusters", "Figures and sources.", CLUSTERS_EXAMPLE),
            **_problems(*EVERYWHERE),
        },
    },
}
PLAN_DOCS: dict[str, Any] = {
    "operation_id": "createPlan",
    "summary": "Search for the best plan of a model on a cluster, by default the fastest.",
    "openapi_extra": {**_body("PlanBody", PLAN_EXAMPLE), "parameters": [PREFER_HEADER]},
    "responses": {
        **_answer("PlanReport", "The best plan, and how far the search got.", PLAN_REPORT_EXAMPLE),
        **_problems(*EVERYWHERE, *COMPUTING),
    },
}
SIMULATION_DOCS: dict[str, Any] = {
    "operation_id": "createSimulation",
    "summary": "Price one plan, whether it fits or not.",
    "openapi_extra": _body("SimulationBody", SIMULATION_EXAMPLE),
    "responses": {
        **_answer("Report", "What is predicted of the plan.", REPORT_EXAMPLE),
        **_problems(*EVERYWHERE, *COMPUTING),
    },
}
WHAT_IF_DOCS: dict[str, Any] = {
    "operation_id": "createWhatIf",
    "summary": "Price a plan in a changed setting, as it is and planned anew.",
    "openapi_extra": {**_body("WhatIfBody", WHAT_IF_EXAMPLE), "parameters": [PREFER_HEADER]},
    "responses": {
        **_answer("WhatIf", "Both answers, and the term that moved.", WHAT_IF_ANSWER_EXAMPLE),
        **_problems(*EVERYWHERE, *COMPUTING),
    },
}


def _schemas() -> dict[str, Any]:
    """Every component: request bodies, the report, the catalogues, problems."""
    found: dict[str, Any] = {"Problem": PROBLEM_SCHEMA}
    adapters: dict[str, TypeAdapter[Any]] = {
        "PlanBody": PLAN_ADAPTER,
        "SimulationBody": SIMULATION_ADAPTER,
        "WhatIfBody": WHAT_IF_ADAPTER,
        **{kind.__name__: TypeAdapter(kind) for kind in REPORT_PARTS},
    }
    for name, adapter in adapters.items():
        schema = adapter.json_schema(ref_template=REF)
        found.update(schema.pop("$defs", {}))
        found[name] = schema
    found["Report"] = _object(_report_properties())
    searched = {
        "search": _ref("SearchResult"),
        "alternatives": _array_of_objects(),
        "sensitivities": {"type": "array", "items": _ref("Sensitivity")},
    }
    found["PlanReport"] = _object({**_report_properties(), **searched})
    found.update(what_if_schemas())
    found["Status"] = _object({"status": {"type": "string"}})
    found["Models"] = _object({"default": {"type": "string"}, "models": _array_of_objects()})
    found["Clusters"] = _object(
        {
            "forms": {"type": "array", "items": {"type": "string"}},
            "local": {"type": "object", "description": "The machine that the service runs on."},
            **{name: _array_of_objects() for name in ("devices", "nodes", "fabrics")},
        }
    )
    return found


REPORT_PARTS: tuple[type[Any], ...] = (
    Prediction,
    SearchResult,
    Assumption,
    Provenance,
    Sensitivity,
)


def _ref(name: str) -> dict[str, str]:
    return {"$ref": REF.format(model=name)}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array_of_objects() -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object"}}


def _report_properties() -> dict[str, Any]:
    return {
        "plan": {"type": "object", "description": "The decisions; a document to keep and run."},
        "plan_hash": {"type": "string"},
        "prediction": _ref("Prediction"),
        "assumptions": {"type": "array", "items": _ref("Assumption")},
        "source_share": {"type": "object", "additionalProperties": {"type": "number"}},
        "provenance": _ref("Provenance"),
    }


def install_openapi(app: FastAPI) -> None:
    """Let ``app`` describe itself with the components of this module."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title, version=app.version, summary=app.summary, routes=app.routes
            )
            document.setdefault("components", {})["schemas"] = _schemas()
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]
