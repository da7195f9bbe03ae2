"""Description of measured profiles, with a working example."""

from __future__ import annotations

from typing import Any

from ....costmodel.pricing.version import PRICING_VERSION
from .parts import (
    COMMON_STATUSES,
    COMPUTE_STATUSES,
    REF,
    answer_docs,
    body_docs,
    problem_docs,
    with_links,
)

PROFILE_EXAMPLE: dict[str, Any] = {
    "name": "our-a100s",
    "rows": [
        {"hardware": "A100-80GB", "gpus": 64, "gpus_per_node": 8, "model": "GPT-3.6B",
         "layers": 30, "hidden": 3072, "ffn": 12288, "heads": 32, "kv_heads": 32, "seq": 2048,
         "tp": tp, "pp": 1, "dp": 64 // tp, "micro_batch": batch, "global_batch": 512,
         "recompute": "full", "step_time_s": step_s}
        for tp, batch, step_s in ((1, 8, 3.5665), (1, 4, 3.6383), (2, 8, 3.9752))
    ],
}  # fmt: skip
PROFILE_ANSWER_EXAMPLE: dict[str, Any] = {
    "schema_version": 1,
    "name": "our-a100s",
    "device": "A100-SXM-80GB",
    "stack": "shardwright",
    "products": "16-bit",
    "profile": "",
    "pricing_version": PRICING_VERSION,
    "factors": {
        "matmul": 1.449,
        "attention": 1.21,
        "elementwise": 1.236,
        "inner_links": 1.123,
        "outer_links": 1.02,
        "host": 1.002,
    },
    "fitted_on": ["unnamed-0", "unnamed-1", "unnamed-2"],
    "half_width": 0.07459,
    "shipped_error": 0.2845,
    "fitted_error": 0.00281,
    "left_out_error": 0.004418,
    "memory": None,
    "residual": None,
    "hash": "sha256:506757f820833b9b1b78feb1bd00614e36dd69394194a570b3018b9f356d0eb1",
    "rows_read": 3,
    "rows_usable": 3,
    "held_out": {"rows": 0},
}
COUNTS = ("rows_read", "rows_usable", "held_out")
KEPT_EXAMPLE = {k: v for k, v in PROFILE_ANSWER_EXAMPLE.items() if k not in COUNTS}
PAGE_EXAMPLE: dict[str, Any] = {
    "items": [
        {
            **{k: KEPT_EXAMPLE[k] for k in ("name", "hash", "device", "stack", "products")},
            "fitted_on": 3,
            "of_memory": False,
        }
    ]
}
NAME_PARAMETER = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "As it was stored.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
    "example": "our-a100s",
}
READ_STATUSES = (*COMMON_STATUSES, 404)
PROFILE_DOCS: dict[str, dict[str, Any]] = {
    "POST": {
        "operation_id": "createProfile",
        "summary": "Fit a calibration to measured runs or kernels and keep it; runs nothing.",
        "status_code": 201,
        "openapi_extra": body_docs("ProfileBody", PROFILE_EXAMPLE),
        "responses": {
            **answer_docs(
                "Profile", "It took the place of an earlier one.", PROFILE_ANSWER_EXAMPLE
            ),
            **with_links(
                answer_docs(
                    "Profile", "Kept; calibration: NAME uses it.", PROFILE_ANSWER_EXAMPLE, 201
                ),
                "name",
                "name",
                "getProfile",
                "deleteProfile",
            ),
            **problem_docs(*COMMON_STATUSES, *COMPUTE_STATUSES),
        },
    },
    "GET": {
        "operation_id": "listProfiles",
        "summary": "The profiles of this token.",
        "responses": {
            **answer_docs("ProfilePage", "All of them, by name.", PAGE_EXAMPLE),
            **problem_docs(*COMMON_STATUSES),
        },
    },
    "GET /{name}": {
        "operation_id": "getProfile",
        "summary": "A profile: the factors that were fitted and to what.",
        "openapi_extra": {"parameters": [NAME_PARAMETER]},
        "responses": {
            **answer_docs("Profile", "The profile.", KEPT_EXAMPLE),
            304: {"description": "It is what the client has."},
            **problem_docs(*READ_STATUSES),
        },
    },
    "DELETE /{name}": {
        "operation_id": "deleteProfile",
        "summary": "Forget a profile; jobs keep what they were accepted with.",
        "status_code": 204,
        "openapi_extra": {"parameters": [NAME_PARAMETER]},
        "responses": {204: {"description": "It is gone."}, **problem_docs(*READ_STATUSES)},
    },
}


def profile_schemas() -> dict[str, Any]:
    """Schemas of profiles, except body and calibration."""
    text, number = {"type": "string"}, {"type": "integer"}
    item = {**dict.fromkeys(("name", "hash", "device", "stack", "products"), text)}
    page = {**item, "fitted_on": number, "of_memory": {"type": "boolean"}}
    counts = {"rows_read": number, "rows_usable": number, "held_out": {"type": "object"}}
    return {
        "Profile": {
            "allOf": [
                {"$ref": REF.format(model="Calibration")},
                {"type": "object", "properties": {"hash": text, **counts}, "required": ["hash"]},
            ]
        },
        "ProfilePage": {
            "type": "object",
            "required": ["items"],
            "properties": {
                "items": {
                    "type": "array",
                    "items": {"type": "object", "properties": page, "required": list(page)},
                }
            },
        },
    }
