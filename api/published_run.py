"""A published run as a question to ``plan simulate``: its flags, and what had to be assumed.

A blank is filled by one documented default and listed; what has no meaning here is refused with
the reason. Where the blocks do not divide into the stages, the question is a plan instead of
flags: layers, both ends counted, are cut as evenly as they go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ..datasets.published.names import model_entry, names, source_entry
from ..datasets.published.runs import PublishedRun
from ..spec.errors import InputError
from ..spec.report import Assumption

NEEDED = ("layers", "hidden", "heads", "seq", "micro_batch", "tp", "gpus")
LORA = "lora:rank=16,alpha=32,targets=query+key+value+output"


@dataclass(slots=True)
class Question:
    """Arguments of ``shardwright.simulate`` by name; ``even_cuts``: layers, not blocks, are cut."""

    arguments: dict[str, Any]
    even_cuts: bool = False
    assumed: list[Assumption] = field(default_factory=list)

    def assume(self, name: str, value: Any, why: str) -> Any:
        """List a value that the source does not print, and return it."""
        self.assumed.append(Assumption(path=name, value=value, why=why))
        return value


def question_of(run: PublishedRun) -> Question:
    """What to ask of ``plan simulate`` for a published run.

    Raises:
        InputError: a missing size, or a name that has no meaning here.
    """
    for name in NEEDED:
        if getattr(run, name) is None:
            raise InputError(f"{run.id}: {name}", "nothing", "a row with this field")
    found = Question({})
    given = found.arguments
    given["model"] = _model(run, found)
    given["cluster"] = _cluster(run, found)
    _layout(run, found)
    _formats(run, found)
    _batch(run, found)
    if "LoRA" in run.model:
        given["trainable"] = found.assume("trainable", LORA, "rank and targets are not printed")
    given["calibration"] = "none"
    return found


def _model(run: PublishedRun, found: Question) -> str | dict[str, Any]:
    entry = model_entry(run.model)
    if not entry:
        raise InputError(f"{run.id}: model", run.model, "a model family that is known here")
    if "preset" in entry:
        return str(entry["preset"])
    keys: dict[str, Any] = dict(entry.get("keys", {}))
    if "why" in entry:
        found.assume("model", run.model, entry["why"])
    keys |= {name: getattr(run, name) for name in ("layers", "hidden", "heads")}
    for name in ("ffn", "kv_heads"):
        if getattr(run, name) is not None:
            keys[name] = getattr(run, name)
    vocab = run.vocab or found.assume("model.vocab", entry["vocab"], "not printed; the usual one")
    return {**keys, "vocab": vocab, "name": re.sub(r"[^A-Za-z0-9.]+", "-", run.model).strip("-")}


def _cluster(run: PublishedRun, found: Question) -> str:
    entry = names()["hardware"].get(run.hardware)
    if entry is None:
        raise InputError(f"{run.id}: hardware", run.hardware, "a device of the catalogue")
    if "why" in entry:
        found.assume("cluster", entry["device"], entry["why"])
    gpus = run.gpus or 0
    per_node = min(run.gpus_per_node or 8, gpus)
    if gpus % per_node:
        raise InputError(f"{run.id}: gpus", gpus, f"whole nodes of {per_node}")
    return f"{gpus // per_node}x{per_node}x{entry['device']}"


def _layout(run: PublishedRun, found: Question) -> None:
    given, source = found.arguments, source_entry(run.source_name)
    for name in ("tp", "pp", "vpp", "cp", "ep"):
        given[name] = getattr(run, name) or 1
    blocks, chunks = run.layers or 0, given["pp"] * given["vpp"]
    found.even_cuts = blocks % chunks != 0
    if found.even_cuts:
        found.assume("cuts", chunks, f"{blocks} blocks do not divide; all layers cut evenly")
    if run.zero is not None:
        given["shard"] = f"zero{run.zero}"
    else:
        given["shard"] = found.assume("shard", source.get("shard", "zero0"), _why(source))
    if given["tp"] > 1 and "sp" in source:
        given["sp"] = found.assume("sp", source["sp"], _why(source))


def _formats(run: PublishedRun, found: Question) -> None:
    given, source = found.arguments, source_entry(run.source_name)
    if run.dtype:
        if run.dtype not in names()["dtype"]:
            raise InputError(f"{run.id}: dtype", run.dtype, "a number format that is known here")
        given["dtype"] = names()["dtype"][run.dtype]
    else:
        given["dtype"] = found.assume("dtype", source.get("dtype", "bf16"), _why(source))
    if run.recompute:
        if run.recompute not in names()["recompute"]:
            allowed = "none, selective or full, not single operations"
            raise InputError(f"{run.id}: recompute", run.recompute, allowed)
        given["recompute"] = names()["recompute"][run.recompute]
    else:
        usual = source.get("recompute", "none")
        given["recompute"] = found.assume("recompute", usual, _why(source))
    for name in ("stack", "attention", "overlap"):
        if name in source:
            given[name] = found.assume(name, source[name], _why(source))


def _why(source: Any) -> str:
    return f"not printed; {source.get('why', 'nothing is known of the source')}"


def _batch(run: PublishedRun, found: Question) -> None:
    given = found.arguments
    split = given["tp"] * given["pp"] * given["cp"]
    dp = run.dp or (run.gpus or 0) // split
    given["seq_len"], given["micro_batch"] = run.seq, run.micro_batch
    if run.global_batch is not None:
        given["global_batch"] = run.global_batch
        return
    steps = re.search(r"grad_accum=(\d+)", run.notes)
    accumulation = int(steps.group(1)) if steps else 1
    batch = (run.micro_batch or 0) * dp * accumulation
    why = "micro-batch x dp x accumulation" + ("" if steps else "; accumulation taken as 1")
    given["global_batch"] = found.assume("global_batch", batch, why)
