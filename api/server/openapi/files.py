"""Description of imports and diagnoses: routes, answers, examples with shortened plans."""

from __future__ import annotations

from typing import Any

from .examples import REPORT_EXAMPLE
from .parts import COMMON_STATUSES, COMPUTE_STATUSES, REF, answer_docs, body_docs, problem_docs

IMPORT_EXAMPLE: dict[str, Any] = {
    "file": {
        "name": "train.args",
        "text": "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
        "--max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 --bf16 "
        "--use-flash-attn --tensor-model-parallel-size 2 --use-distributed-optimizer",
    },
    "model": "gpt2",
    "cluster": "8xH100-80GB",
}
DIAGNOSIS_EXAMPLE: dict[str, Any] = {**IMPORT_EXAMPLE, "measured_step_s": 0.2}
IMPORT_ANSWER_EXAMPLE: dict[str, Any] = {
    **REPORT_EXAMPLE,
    "plan": {"schema_version": 1},
    "framework": "megatron",
    "ignored": [],
}
_CHANGE: dict[str, Any] = {
    "changes": [{"axis": "tp", "was": "2", "now": "1"}],
    "gain": 0.25,
    "step_time_s": 0.16,
    "mfu": 0.041,
    "memory_bytes": 9_600_000_000,
    "memory_change_bytes": 1_200_000_000,
    "same_mathematics": True,
    "checkpoint_conversion": "",
    "flags": [{"key": "tensor-model-parallel-size", "was": "2", "now": "1"}],
    "stack": "megatron",
    "plan": {"schema_version": 1},
    "plan_hash": REPORT_EXAMPLE["plan_hash"],
}
DIAGNOSIS_ANSWER_EXAMPLE: dict[str, Any] = {
    **{key: IMPORT_ANSWER_EXAMPLE[key] for key in ("plan", "plan_hash", "prediction")},
    "provenance": REPORT_EXAMPLE["provenance"],
    "assumptions": REPORT_EXAMPLE["assumptions"],
    "source": "train.args",
    "framework": "megatron",
    "log": None,
    "waterfall": {
        "measured_s": 0.2,
        "predicted_s": 0.1334,
        "mfu": 0.03303,
        "mfu_full_attention": 0.0346,
        "explained": 0.6555,
        "bars": [
            {"term": "at_peak", "seconds": 0.0066, "share": 0.033, "meaning": "FLOPs"},
            {"term": "host", "seconds": 0.1268, "share": 0.634, "meaning": "launching"},
            {"term": "unexplained", "seconds": 0.0666, "share": 0.333, "meaning": "beyond"},
        ],
    },
    "explains": True,
    "measure_next": [],
    "noise": None,
    "memory": {"measured_bytes": None, "measured_count": None,
               "predicted": REPORT_EXAMPLE["prediction"]["memory"][0]},
    "trace": None,
    "changes": {"alone": [_CHANGE], "together": None, "priced": 1, "why_none": ""},
    "ignored": [],
}  # fmt: skip
IMPORT_DOCS: dict[str, Any] = {
    "operation_id": "createImport",
    "summary": "Read another framework's configuration as a plan, and price it.",
    "openapi_extra": body_docs("ImportBody", IMPORT_EXAMPLE),
    "responses": {
        **answer_docs("ImportedPlan", "The plan, and keys that were not read.",
                      IMPORT_ANSWER_EXAMPLE),
        **problem_docs(*COMMON_STATUSES, *COMPUTE_STATUSES),
    },
}  # fmt: skip
DIAGNOSIS_DOCS: dict[str, Any] = {
    "operation_id": "createDiagnosis",
    "summary": "Explain a measured run by its log or configuration, and rank changes of it.",
    "openapi_extra": body_docs("DiagnosisBody", DIAGNOSIS_EXAMPLE),
    "responses": {
        **answer_docs("Diagnosis", "Where the step goes, and what would make it shorter.",
                      DIAGNOSIS_ANSWER_EXAMPLE),
        **problem_docs(*COMMON_STATUSES, *COMPUTE_STATUSES),
    },
}  # fmt: skip


def file_schemas() -> dict[str, Any]:
    """Components of what is answered about files; ``ImportedPlan`` is a report and two keys."""
    number, text = {"type": "number"}, {"type": "string"}
    texts = {"type": "array", "items": text}
    some = {"type": ["string", "null"]}
    said = _object({"framework": text, "ignored": texts})
    return {
        "ImportedPlan": {"allOf": [{"$ref": REF.format(model="Report")}, said]},
        "Diagnosis": _object(
            {
                "plan": {"type": "object", "description": "The decisions of the run."},
                "plan_hash": text,
                "source": text,
                "framework": some,
                "log": {**some, "description": "Kind of the log, null without one."},
                "prediction": {"$ref": REF.format(model="Prediction")},
                "waterfall": {"$ref": REF.format(model="Waterfall")},
                "explains": {"type": "boolean", "description": "At least half of the loss."},
                "measure_next": texts,
                "noise": {"type": ["object", "null"]},
                "memory": {"type": "object"},
                "trace": {"type": ["object", "null"]},
                "changes": {"type": "object", "description": "alone, together, priced, why_none."},
                "ignored": texts,
                "assumptions": {
                    "type": "array",
                    "items": {"$ref": REF.format(model="Assumption")},
                },
                "provenance": {"$ref": REF.format(model="Provenance")},
            }
        ),
        "Waterfall": _object(
            {
                **dict.fromkeys(("measured_s", "predicted_s", "mfu", "mfu_full_attention"), number),
                "explained": {**number, "description": "Fraction of the loss."},
                "bars": {
                    "type": "array",
                    "description": "Their exact sum is measured_s.",
                    "items": _object(
                        {"term": text, "seconds": number, "share": number, "meaning": text}
                    ),
                },
            }
        ),
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
