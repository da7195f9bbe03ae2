"""Schemas and examples of sizes of trainings."""

from __future__ import annotations

from typing import Any

from .examples import PLAN_REPORT_EXAMPLE

SIZE_EXAMPLE: dict[str, Any] = {
    "model": "gpt2",
    "tokens": "100M",
    "cluster": "8xH100-80GB",
    "workload": {"global_batch": 64, "seq_len": 1024},
}
SIZE_ANSWER_EXAMPLE: dict[str, Any] = {
    "model": "llama-3-70b",
    "device": "H100-80GB",
    "tokens": 2_000_000_000_000,
    "within_s": 2_592_000.0,
    "budget": None,
    "currency": None,
    "answer": 1024,
    "ruled_out": False,
    "points": [
        {
            "devices": 1024,
            "global_batch": 1024,
            "feasible": True,
            "searched": True,
            "proven": False,
            "time_s": 1_935_000.0,
            "days": 22.4,
            "least_days": 15.7,
            "device_hours": 550_400.0,
            "cost": None,
            "step_time_s": 4.06,
            "lower_bound_s": 2.84,
            "mfu": 0.491,
            "tokens_per_s": 1_033_000.0,
            "plan": {"schema_version": 1},
            "plan_hash": PLAN_REPORT_EXAMPLE["plan_hash"],
            "shape": "tp 4, pp 4, dp 64, zero1, 1f1b, micro-batch 1 x 8",
            "why": "",
        }
    ],
    "scaling": "strong",
    "weak_points": [],
    "assumptions": PLAN_REPORT_EXAMPLE["assumptions"],
}


def size_schemas() -> dict[str, Any]:
    """Components of a curve over numbers of devices, and of ways to fine-tune on a cluster."""
    text, count = {"type": "string"}, {"type": "integer"}
    number, flag = {"type": ["number", "null"]}, {"type": "boolean"}
    some = {"type": ["string", "null"]}
    point = {
        "devices": count,
        **dict.fromkeys(("feasible", "searched", "proven"), flag),
        **dict.fromkeys(("time_s", "days", "least_days", "device_hours", "cost"), number),
        **dict.fromkeys(("step_time_s", "lower_bound_s", "mfu", "tokens_per_s"), number),
        "plan": {"type": ["object", "null"], "description": "The decisions."},
        **dict.fromkeys(("plan_hash", "shape"), some),
        "global_batch": {"type": ["integer", "null"]},
        "why": {"type": "string", "description": "What stands in its way."},
    }
    points = {"type": "array", "items": {"$ref": "#/components/schemas/SizePoint"}}
    rest = {"assumptions": {"type": "array", "items": {"$ref": "#/components/schemas/Assumption"}}}
    way = {"name": text, "trainable": text, "hours": number, "why": text}
    return {
        "SizePoint": _object(point),
        "TrainingSize": _object(
            {
                "model": text, "device": text, "tokens": count,
                "within_s": number, "budget": number,
                "currency": some,
                "answer": {
                    "type": ["integer", "null"],
                    "description": "The smallest number of devices that meets the limits.",
                },
                "ruled_out": {**flag, "description": "Bounds prove that no plan meets them."},
                "points": points,
                "scaling": {"enum": ["strong", "weak", "both"]},
                "weak_points": {**points, "description": "The second curve of both, else empty."},
                **rest,
            }
        ),
        "FineTuning": _object(
            {
                "model": text, "cluster": text, "tokens": count,
                "ways": {
                    "type": "array",
                    "description": "full, LoRA, QLoRA, each with the keys of a SizePoint too.",
                    "items": _object(way),
                },
                **rest,
            }
        ),
        "Size": {
            "oneOf": [
                {"$ref": "#/components/schemas/TrainingSize"},
                {"$ref": "#/components/schemas/FineTuning"},
            ]
        },
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
