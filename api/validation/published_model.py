"""The model of a published run: a preset, or printed sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...datasets.catalogue.tables import read_table
from ...datasets.models.load import presets
from ...datasets.published.names import model_entry
from ...datasets.published.runs import PublishedRun
from .published_draft import TEST_WHY, RunDraft


def model_of_run(draft: RunDraft) -> str | dict[str, Any]:
    """The preset or the typed sizes of the model that was run.

    Raises:
        InputError: the row says too little of it, or not what its preset has.
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
