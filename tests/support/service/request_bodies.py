"""What tests and evidence post to a service: searches that are over at once, soon and late."""

from __future__ import annotations

from typing import Any

MODEL: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 300}
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "cluster": "2xH100",
    "workload": {"global_batch": 4, "seq_len": 64},
}
"""A search of a second or two: so small a step has many plans that are about as good."""
PLAN: dict[str, Any] = {**QUESTION, "constraints": {"pins": ["dp=2", "recompute=none"]}}
"""A search of a tenth of a second."""
SLOW: dict[str, Any] = {
    "model": "llama-3.1-405b",
    "cluster": "128x8xH100",
    "workload": {"global_batch": 2048, "seq_len": 8192},
    "deadline_s": 300,
}
"""A search of many seconds."""
