"""The example of a what-if: request and answer.

The plan is that of the other examples; figures are shortened.
"""

from __future__ import annotations

from typing import Any

from .examples import REPORT_EXAMPLE

_PLAN: dict[str, Any] = REPORT_EXAMPLE["plan"]
WHAT_IF_EXAMPLE: dict[str, Any] = {"plan": _PLAN, "set": {"intra_node.bandwidth": "2x"}}


def _prediction(step_time_s: float, tokens: float, mfu: float, **terms: float) -> dict[str, Any]:
    shown: dict[str, Any] = REPORT_EXAMPLE["prediction"]
    return {
        **shown,
        "step_time_s": step_time_s,
        "step_time_interval_s": [round(step_time_s * f, 3) for f in (0.75, 1.25)],
        "samples_per_s": round(64 / step_time_s, 3),
        "tokens_per_s": 8 * tokens,
        "tokens_per_s_per_device": tokens,
        "mfu": mfu,
        "mfu_causal": round(mfu * shown["mfu_causal"] / shown["mfu"], 4),
        "breakdown_s": {**shown["breakdown_s"], **terms},
    }


_HASH: str = REPORT_EXAMPLE["plan_hash"]
_BASE = {"attention": 1.039, "elementwise": 0.8847, "matmul": 3.947, "recompute": 1.643}
_SAME = {**_BASE, "exposed_dp": 0.005556, "exposed_tp": 0.4006}
_BEST = {"attention": 0.998, "elementwise": 0.5446, "matmul": 4.149, "recompute": 0.0,
         "exposed_dp": 0.0444, "exposed_tp": 0.0}  # fmt: skip
_FITS: dict[str, Any] = {"plan": _PLAN, "plan_hash": _HASH, "excess": [], "idle_devices": 0}
WHAT_IF_ANSWER_EXAMPLE: dict[str, Any] = {
    "plan_hash": _HASH,
    "baseline": {**_FITS, "prediction": _prediction(8.282, 7913.0, 0.4632, **_BASE)},
    "scale": "fixed",
    "assumptions": [{"path": "stack", "value": "shardwright", "why": "not given"}],
    "provenance": REPORT_EXAMPLE["provenance"],
    "changes": [{"path": "intra_node.bandwidth", "was": 4.5e11, "now": 9.0e11}],
    "same_plan": {
        "possible": True,
        **_FITS,
        "prediction": _prediction(7.935, 8259.0, 0.4834, **_SAME),
        "change": [],
    },
    "moved": {"term": "exposed_tp", "seconds": -0.3414},
    "re_planned": {
        "possible": True,
        **_FITS,
        "plan_hash": "sha256:71cbdb2834ce5098da7b5a0849d31aa9a5120aef5bf41cf66bbc01e880671702",
        "prediction": _prediction(5.752, 11390.0, 0.6669, **_BEST),
        "gain": 0.3796,
        "kept": False,
        "change": [
            {"axis": "tp", "was": "2", "now": "1"},
            {"axis": "recompute", "was": "none/full", "now": "none"},
        ],
        "moved": {"term": "recompute", "seconds": -1.643},
        "search": {"candidates": 15, "gap": 0.04318, "lower_bound_s": 5.514, "stopped_by": "work"},
    },
}
