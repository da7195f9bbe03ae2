"""Mistakes of the command line as the same mistakes in Python and over HTTP.

Only those that can be made there: what is about flags, files and runs alone has no other form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from shardwright.api.planning.uniform_plan import strategy_flags

WORKLOAD = ("global_batch", "global_batch_tokens", "seq_len", "dtype", "optimizer", "trainable")
CONSTRAINTS = ("memory_gib", "host_gib", "oom_risk", "top")
STRATEGY = strategy_flags()
BARE = {"model": "gpt2", "cluster": "8xH100", "global_batch": 8, "seq_len": 1024}
PLAIN = ("model", "cluster", "stack", "calibration", "objective", "prefer", "attention", "overlap",
         "deadline_s")  # fmt: skip
KNOWN = {*WORKLOAD, *CONSTRAINTS, *STRATEGY, *PLAIN, "pin"}
FILES = ("files", "bytes", "folders", "plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A mistake as values by name; ``pins`` apart, because there may be several."""

    simulates: bool
    values: dict[str, Any]
    pins: tuple[str, ...]

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``sw.plan`` or ``sw.simulate``."""
        found = dict(self.values)
        if self.simulates:
            found["plan_or_model"] = found.pop("model")
        elif self.pins:
            found["pins"] = self.pins
        return found

    @property
    def body(self) -> dict[str, Any]:
        """The body of ``POST /v1/plans`` or ``/v1/simulations``."""
        found: dict[str, Any] = {n: v for n, v in self.values.items() if n in PLAIN}
        found["workload"] = {n: v for n, v in self.values.items() if n in WORKLOAD}
        if strategy := {n: v for n, v in self.values.items() if n in STRATEGY}:
            found["strategy"] = strategy
        limits = {n: v for n, v in self.values.items() if n in CONSTRAINTS}
        if self.simulates:
            return found | limits
        if self.pins:
            limits["pins"] = list(self.pins)
        return found | ({"constraints": limits} if limits else {})


def form_of(case: dict[str, Any]) -> Form | None:
    """The form of a case; None where there is no other than its own."""
    words = list(case["argv"])
    simulates = bool(words) and words[0] == "simulate"
    words = words[1:] if simulates else words
    if any(name in case for name in FILES) or case.get("exit", 2) != 2 or len(words) % 2:
        return None
    values: dict[str, Any] = {}
    pins: list[str] = []
    for flag, text in zip(words[::2], words[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        name = "deadline_s" if name == "deadline" else name
        if not flag.startswith("--") or "_" in flag or name not in KNOWN:
            return None
        if name in STRATEGY and not simulates:
            return None
        if name == "pin":
            pins.append(text)
        else:
            values[name] = _typed(text)
    if not {"model", "cluster"} & set(values):
        values = {**BARE, **values}
    values.setdefault("model", BARE["model"])
    values.setdefault("cluster", BARE["cluster"])
    return Form(simulates=simulates, values=values, pins=tuple(pins))


def _typed(text: str) -> Any:
    """A number where it reads as one, as a program would hold it."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    usual = isinstance(found, (int, float)) and not isinstance(found, bool) and found == found
    return found if usual else text
