"""A tiny request of each kind, answered before a child says that it is ready.

What is loaded or built on first use would otherwise cost the first client a second.
"""

from __future__ import annotations

import json
from typing import Any

from ....datasets.catalogue.device import devices
from ....datasets.models.load import presets
from .operations import run_operation

LIMIT_S = 10.0
QUESTION: dict[str, Any] = {
    "model": {"layers": 2, "hidden": 64, "heads": 4, "vocab": 300},
    "cluster": "2xH100",
    "workload": {"global_batch": 4, "seq_len": 64},
}


def warm_up() -> dict[str, int]:
    """Answer them; return the status of each operation."""
    presets()
    devices()
    statuses: dict[str, int] = {}

    def answer(operation: str, document: dict[str, Any]) -> bytes:
        body = json.dumps(document).encode()
        statuses[operation], answer = run_operation(operation, body, LIMIT_S)
        return answer

    report = json.loads(answer("simulation", {**QUESTION, "strategy": {"dp": 2}}))
    if "plan" not in report:
        return statuses
    answer("check-plan", QUESTION)
    answer("check-what-if", {"plan": report["plan"], "set": {"nodes": 2}})
    answer("trace", {"report": report, "asked": QUESTION, "lent": {"known": [], "found": None}})
    return statuses
