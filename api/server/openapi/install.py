"""The service's own description: request types, answers, problems, examples."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.responses import Response

from ....spec.cluster.calibration import Calibration
from ....spec.codec import json_schema
from ....spec.report.report import Assumption, Prediction, Provenance, SearchResult, Sensitivity
from ..compute.file_requests import DIAGNOSIS_ADAPTER, IMPORT_ADAPTER
from ..compute.requests import (
    PLAN_ADAPTER,
    PROFILE_ADAPTER,
    RUN_ADAPTER,
    SIMULATION_ADAPTER,
    WHAT_IF_ADAPTER,
)
from ..compute.size_request import SIZE_ADAPTER
from .examples import (
    CLUSTERS_EXAMPLE,
    MODEL_EXAMPLE,
    MODELS_EXAMPLE,
    REPORT_EXAMPLE,
    SIMULATION_EXAMPLE,
)
from .files import file_schemas
from .jobs import job_schemas
from .parts import (
    COMMON_STATUSES,
    COMPUTE_STATUSES,
    EARLY_STATUSES,
    PROBLEM_SCHEMA,
    REF,
    answer_docs,
    body_docs,
    problem_docs,
)
from .profiles import profile_schemas
from .sizes import size_schemas
from .views import view_schemas
from .what_if import what_if_schemas

HEALTH_DOCS: dict[str, Any] = {
    "operation_id": "health",
    "summary": "Whether the service runs.",
    "responses": {
        **answer_docs("Status", "It runs.", {"status": "ok"}),
        **problem_docs(*EARLY_STATUSES),
    },
}
READY_EXAMPLE = {"status": "ready", "db": "ok", "workers": 2}
READY_DOCS: dict[str, Any] = {
    "operation_id": "readiness",
    "summary": "Whether the service can compute.",
    "responses": {
        **answer_docs("Ready", "It can.", READY_EXAMPLE),
        **problem_docs(*EARLY_STATUSES),
    },
}
METRICS_EXAMPLE = 'shardwright_jobs{state="running"} 2.0\nshardwright_workers 2.0\n'
METRICS_DOCS: dict[str, Any] = {
    "operation_id": "readMetrics",
    "summary": "Figures as Prometheus reads them.",
    "response_class": Response,
    "responses": {
        200: {
            "description": "Requests, jobs, workers.",
            "content": {
                "text/plain": {
                    "schema": {"$ref": REF.format(model="Metrics")},
                    "example": METRICS_EXAMPLE,
                }
            },
        },
        **problem_docs(*COMMON_STATUSES),
    },
}
MODEL_NAME = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "As GET /v1/models lists it, upper and lower case alike.",
    "schema": {"type": "string"},
    "example": "gpt2",
}
CHOICES_EXAMPLE = {"optimizer": ["adamw", "lion"], "prefer": ["simple", "best"]}
CATALOGUE_DOCS: dict[str, dict[str, Any]] = {
    "models": {
        "operation_id": "listModels",
        "summary": "Models that have a name here.",
        "responses": {
            **answer_docs("Models", "Sizes and sources.", MODELS_EXAMPLE),
            **problem_docs(*COMMON_STATUSES),
        },
    },
    "model": {
        "operation_id": "getModel",
        "summary": "A named model: its kinds of layers, bytes, linear layers for adapters.",
        "openapi_extra": {"parameters": [MODEL_NAME]},
        "responses": {
            **answer_docs("Model", "The model.", MODEL_EXAMPLE),
            **problem_docs(*COMMON_STATUSES, 404),
        },
    },
    "choices": {
        "operation_id": "listChoices",
        "summary": "Words that a question takes: stacks, optimizers, number formats.",
        "responses": {
            **answer_docs("Choices", "Words by the name of what is asked.", CHOICES_EXAMPLE),
            **problem_docs(*COMMON_STATUSES),
        },
    },
    "clusters": {
        "operation_id": "listClusters",
        "summary": "Devices, nodes, fabrics and clouds' instances that have a name here.",
        "responses": {
            **answer_docs("Clusters", "Figures and sources.", CLUSTERS_EXAMPLE),
            **problem_docs(*COMMON_STATUSES),
        },
    },
}
SIMULATION_DOCS: dict[str, Any] = {
    "operation_id": "createSimulation",
    "summary": "Price one plan, whether it fits or not.",
    "openapi_extra": body_docs("SimulationBody", SIMULATION_EXAMPLE),
    "responses": {
        **answer_docs("Report", "What is predicted of the plan.", REPORT_EXAMPLE),
        **problem_docs(*COMMON_STATUSES, *COMPUTE_STATUSES),
    },
}


def _schemas() -> dict[str, Any]:
    """Every component: request bodies, the report, the catalogues, problems."""
    components: dict[str, Any] = {"Problem": PROBLEM_SCHEMA}
    adapters: dict[str, TypeAdapter[Any]] = {
        "PlanBody": PLAN_ADAPTER,
        "SimulationBody": SIMULATION_ADAPTER,
        "WhatIfBody": WHAT_IF_ADAPTER,
        "RunBody": RUN_ADAPTER,
        "ProfileBody": PROFILE_ADAPTER,
        "SizeBody": SIZE_ADAPTER,
        "ImportBody": IMPORT_ADAPTER,
        "DiagnosisBody": DIAGNOSIS_ADAPTER,
    }
    schemas = {name: adapter.json_schema(ref_template=REF) for name, adapter in adapters.items()}
    schemas |= {kind.__name__: json_schema(kind, REF) for kind in REPORT_PARTS}
    for name, schema in schemas.items():
        components.update(schema.pop("$defs", {}))
        components[name] = schema
    components["Report"] = _object(_report_properties())
    components["Report"]["properties"] |= {
        "explain": {"type": "object", "description": "Every term; where include asks for it."},
        "trace": {"type": "object", "description": "Perfetto's; where include asks for it."},
    }
    searched = {
        "search": _ref("SearchResult"),
        "alternatives": _array_of_objects(),
        "sensitivities": {"type": "array", "items": _ref("Sensitivity")},
    }
    components["PlanReport"] = _object({**_report_properties(), **searched})
    components["PlanReport"]["properties"] |= {
        "advice": {
            **_array_of_objects(),
            "description": "Near sizes that train faster, and why the plan is fragile, if so.",
        },
        "common_stack": {
            "type": "object",
            "description": "Stack, plan and prediction of the nearest common software; where no "
            "stack was given.",
        },
    }
    components.update(what_if_schemas())
    components.update(job_schemas())
    components.update(profile_schemas())
    components.update(view_schemas())
    components.update(size_schemas())
    components.update(file_schemas())
    components["Ready"] = _object(
        {
            "status": {"type": "string"},
            "db": {"type": "string"},
            "workers": {"type": "integer", "description": "That said they live, a moment ago."},
        }
    )
    components["Metrics"] = {"type": "string", "description": "Prometheus' text format."}
    components["Status"] = _object({"status": {"type": "string"}})
    components.update(_catalogue_schemas())
    return components


def _catalogue_schemas() -> dict[str, Any]:
    """Components of what has a name here: models, words, clusters."""
    components: dict[str, Any] = {}
    components["Models"] = _object({"default": {"type": "string"}, "models": _array_of_objects()})
    count = {"type": "integer"}
    components["Model"] = _object(
        {
            "name": {"type": "string"},
            "kind": {"type": "string"},
            **dict.fromkeys(("parameters", "layers", "weights_bytes", "training_bytes"), count),
            "layer_kinds": _array_of_objects(),
            "adapter_targets": {"type": "array", "items": {"type": "string"}},
            "assumptions": {"type": "array", "items": _ref("Assumption")},
            "spec": {"type": "object", "description": "The model spelled out, to keep or change."},
        }
    )
    words = {"type": "array", "items": {"type": "string"}}
    components["Choices"] = {"type": "object", "additionalProperties": words}
    components["Clusters"] = _object(
        {
            "forms": {"type": "array", "items": {"type": "string"}},
            "local": {"type": "object", "description": "The machine that the service runs on."},
            **{name: _array_of_objects() for name in ("devices", "nodes", "fabrics", "instances")},
        }
    )
    return components


REPORT_PARTS: tuple[type[Any], ...] = (
    Prediction,
    SearchResult,
    Assumption,
    Provenance,
    Sensitivity,
    Calibration,
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
