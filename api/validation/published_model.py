"""A published run becoming a question: draft, model, memory states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...datasets.catalogue.tables import read_table
from ...datasets.models.load import presets
from ...datasets.published.names import model_entry, source_entry, test_entry
from ...datasets.published.runs import PublishedRun
from ...planner.solve.problem import Problem
from ...spec.errors import InputError
from ...spec.report.report import Assumption


def model_of_run(draft: RunDraft) -> str | dict[str, Any]:
    """Preset or typed sizes of the run's model.

    Raises:
        InputError: the row says too little of it, or contradicts its preset.
    """
    run = draft.run
    entry = model_entry(run.model) or _sizes_alone(run)
    if "allowed" in entry:
        raise draft.refuse("model", run.model, entry["allowed"])
    if "why" in entry:
        draft.assume("model", run.model, entry["why"])
    if "preset" in entry:
        return _preset(draft, entry)
    keys: dict[str, Any] = dict(entry.get("keys", {}))
    keys |= {name: getattr(run, name) for name in ("layers", "hidden", "heads")}
    for name in ("ffn", "kv_heads"):
        if getattr(run, name) is not None:
            keys[name] = getattr(run, name)
    if of_test := draft.test.get("keys"):
        keys |= draft.assume("model.keys", of_test, TEST_WHY)
    if run.experts:
        keys |= {"experts": run.experts, "topk": run.topk or draft.assume("topk", 1, "not printed")}
    vocab = run.vocab or draft.assume("model.vocab", entry["vocab"], "not printed; the usual one")
    return {**keys, "vocab": vocab, "name": re.sub(r"[^A-Za-z0-9.]+", "-", run.model).strip("-")}


def _sizes_alone(run: PublishedRun) -> Mapping[str, Any]:
    plain = run.kv_heads in (None, run.heads) and run.ffn in (None, 4 * (run.hidden or 0))
    if plain and not run.experts:
        why = "an unknown model with as many key heads as heads and 4 x hidden is priced as a GPT"
        return {"keys": {"family": "gpt2"}, "vocab": 51200, "why": why}
    why = "an unknown model with shared key heads, another width or experts is priced as a Llama"
    return {"keys": {"family": "llama"}, "vocab": 128256, "why": why}


def _preset(draft: RunDraft, entry: Mapping[str, Any]) -> str | dict[str, Any]:
    run, name = draft.run, str(entry["preset"])
    model = presets()[name].model
    for size, expected in (("layers", model.block_count), ("hidden", model.hidden)):
        if getattr(run, size) != expected:
            raise draft.refuse(size, getattr(run, size), f"{expected}, as {name} has")
    if "config" not in entry:
        return name
    config: dict[str, Any] = read_table("presets")[name]["config"] | entry["config"]
    return config


TEST_WHY = "the test's model_config.yaml in NVIDIA/Megatron-LM (datasets/published)"


@dataclass(slots=True)
class RunDraft:
    """Arguments so far, and the assumptions among them."""

    run: PublishedRun
    arguments: dict[str, Any] = field(default_factory=dict)
    assumed: list[Assumption] = field(default_factory=list)

    @property
    def source(self) -> Mapping[str, Any]:
        """Facts about the run's source."""
        entry = source_entry(self.run)
        if "attention" in self.test:
            entry = {**entry, "attention": self.test["attention"], "why": TEST_WHY}
        return entry

    @property
    def test(self) -> Mapping[str, Any]:
        """Facts about the functional test; empty for other runs."""
        return test_entry(self.run)

    def assume(self, name: str, value: Any, why: str) -> Any:
        """Record a value that the source does not print, and return it."""
        self.assumed.append(Assumption(path=name, value=value, why=why))
        return value

    def usual(self, name: str, default: str) -> Any:
        """Take the source's usual value, and record it as assumed."""
        source = self.source
        why = source.get("why", "nothing is known of the source")
        return self.assume(name, source.get(name, default), f"not printed; {why}")

    def refuse(self, name: str, value: object, allowed: str) -> InputError:
        """Error for a cell without meaning here."""
        return InputError(f"{self.run.id}: {name}", value, allowed)


MEMORY_FORMATS = ("gradient", "narrow_gather", "fused_loss")
"""The format that gradients add up in, whether parameters are fp8 alone, whether the loss is one
kernel."""


def memory_formats(draft: RunDraft) -> Mapping[str, Any]:
    """Return formats of parameters, gradients and logits; empty for time tables."""
    of_memory = draft.source.get("of_memory", {}) if draft.run.metric_kind else {}
    formats = {name: of_memory[name] for name in MEMORY_FORMATS if name in of_memory}
    for name, value in formats.items():
        draft.assume(name, value, f"not printed; {of_memory['why']}")
    return formats


def with_memory_formats(problem: Problem, states: Mapping[str, Any]) -> Problem:
    """The problem with :func:`memory_formats` applied."""
    work, stack = problem.workload, problem.stack
    gradient = states.get("gradient", work.dtype.gradient)
    narrow = states.get("narrow_gather", stack.narrow_gather)
    loss = states.get("fused_loss", stack.fusion.cross_entropy)
    dtype = replace(work.dtype, gradient=gradient)
    return replace(
        problem,
        workload=replace(work, dtype=dtype),
        stack=replace(
            stack, narrow_gather=narrow, fusion=replace(stack.fusion, cross_entropy=loss)
        ),
    )
