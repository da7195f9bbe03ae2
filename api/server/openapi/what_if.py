"""The schema of a what-if answer, as the service describes it."""

from __future__ import annotations

from typing import Any

NUMBER = {"type": "number"}
TEXT = {"type": "string"}
BOOLEAN = {"type": "boolean"}
TEXT_OR_NUMBER = {"type": ["string", "number"]}
MOVED_REF = {"oneOf": [{"$ref": "#/components/schemas/Moved"}, {"type": "null"}]}


def what_if_schemas() -> dict[str, Any]:
    """Schemas of what-ifs; sweeps have ``sweep`` and ``rows``."""
    change = _object({"path": TEXT, "was": TEXT_OR_NUMBER, "now": TEXT_OR_NUMBER})
    priced = {
        "plan": {"type": "object", "description": "The decisions, in the changed setting."},
        "plan_hash": TEXT,
        "prediction": {"$ref": "#/components/schemas/Prediction"},
        "excess": _list(
            _object({"stage": NUMBER, "device_group": TEXT, "tier": TEXT, "excess_bytes": NUMBER})
        ),
        "idle_devices": {"type": "integer"},
    }
    decided = _list(_object({"axis": TEXT, "was": TEXT, "now": TEXT}))
    same = {"possible": BOOLEAN, "why": TEXT, **priced, "change": decided}
    best = {
        **same,
        "gain": {"type": ["number", "null"]},
        "kept": BOOLEAN,
        "moved": MOVED_REF,
        "search": {"type": ["object", "null"]},
    }
    row = {
        "changes": _list(change),
        "same_plan": _object(same, ["possible"]),
        "re_planned": _object(best, ["possible"]),
        "moved": MOVED_REF,
    }
    always = {
        "plan_hash": TEXT,
        "baseline": _object(priced),
        "scale": {"enum": ["batch", "fixed"]},
        "assumptions": _list({"$ref": "#/components/schemas/Assumption"}),
        "provenance": {"$ref": "#/components/schemas/Provenance"},
    }
    swept = {
        "sweep": _object({"path": TEXT, "values": _list(TEXT_OR_NUMBER)}),
        "rows": _list(_object({"value": TEXT_OR_NUMBER, **row})),
    }
    return {
        "Moved": _object({"term": TEXT, "seconds": NUMBER}),
        "WhatIf": _object({**always, **row, **swept}, list(always)),
    }


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    needed = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": needed}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}
