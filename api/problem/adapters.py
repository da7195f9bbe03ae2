"""Low-rank adapters of ``--trainable lora:…``, in our words or PEFT's."""

from __future__ import annotations

from typing import Any

from ...spec.errors import InputError, nearest_name
from ...spec.model.model_spec import ModelSpec
from ...spec.report.report import Assumption
from ...spec.workload.base_formats import BASE_FORMATS
from ...spec.workload.training import Lora, target_names
from .adapter_names import ALL_LINEAR, is_fused, names_for, targets_called

TRAINABLE = "full, lora:rank=R,alpha=A,targets=NAME,…,base_dtype=D or frozen:TOWER,…"
KEYS = ("rank", "alpha", "targets", "base_dtype")
ALIASES = {
    "r": "rank",
    "lora_r": "rank",
    "lora_rank": "rank",
    "lora_alpha": "alpha",
    "target_modules": "targets",
    "lora_target_modules": "targets",
}
"""PEFT's and trainers' names of the keys."""
NEUTRAL = {"lora_dropout": ("0", "0.0"), "bias": ("none",), "task_type": ("CAUSAL_LM",)}
"""Keys of PEFT's that change nothing with these values."""
BRACKETS = str.maketrans("", "", "[]()\"' ")
WHY = "no dropout, biases and norms frozen; scaled by alpha / rank without extra work"


def lora_of(text: str, trainable: str, model: ModelSpec) -> Lora:
    """The adapters of the text behind ``lora:``; ``trainable`` is the whole of it.

    Raises:
        InputError: an unknown key, a target that the model has not, or a number out of range.
    """
    values = _values(text, trainable)
    rank = _positive(values.get("rank", "16"), "rank", whole=True)
    alpha = _positive(values.get("alpha", str(2 * rank)), "alpha")
    base: Any = values.get("base_dtype")
    if base is not None and base not in BASE_FORMATS:
        allowed = "base_dtype " + ", ".join(BASE_FORMATS)
        raise InputError("--trainable", base, allowed, nearest_name(base, BASE_FORMATS))
    targets = _targets(_target_words(values), model)
    return Lora(rank=int(rank), alpha=alpha, targets=targets, base_dtype=base)


def _values(text: str, trainable: str) -> dict[str, str]:
    """The values by our names of the keys."""
    values: dict[str, str] = {}
    key = ""
    for part in text.translate(BRACKETS).split(",") if text else []:
        typed, equals, value = part.partition("=")
        if not equals and key == "targets":  # further targets
            values[key] += f",{part}"
            continue
        if not equals:
            raise InputError("--trainable", trainable, TRAINABLE, "lora:rank=16")
        key = _key(typed, value)
        if key in values:
            raise InputError("--trainable", typed, f"{key} once, under one of its names")
        if key:
            values[key] = value
    return values


def _key(typed: str, value: str) -> str:
    """Our name of a key; '' for one of PEFT's that changes nothing."""
    name = ALIASES.get(typed, typed)
    if name in KEYS:
        return name
    if typed in NEUTRAL:
        if value in NEUTRAL[typed]:
            return ""
        allowed = f"{typed}={NEUTRAL[typed][0]}, for adapters are priced and run so"
        raise InputError("--trainable", f"{typed}={value}", allowed, f"{typed}={NEUTRAL[typed][0]}")
    allowed = "lora with rank (r), alpha (lora_alpha), targets (target_modules), base_dtype"
    raise InputError("--trainable", typed, allowed, nearest_name(typed, (*KEYS, *ALIASES)))


def _positive(text: str, name: str, whole: bool = False) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 2**16 or (whole and number != int(number)):
        allowed = f"{name} as a positive {'whole ' if whole else ''}number, such as 16"
        raise InputError("--trainable", f"{name}={text}", allowed, 16)
    return number


def _target_words(values: dict[str, str]) -> list[str]:
    return values.get("targets", "query,value").split(",")


def _targets(words: list[str], model: ModelSpec) -> tuple[str, ...]:
    targets = target_names(model)
    if len(words) == 1 and words[0] in ALL_LINEAR:
        return targets
    found: dict[str, None] = {}
    for word in words:
        slots = targets_called(word, model, targets)
        if not slots:
            near = nearest_name(word, (*targets, *names_for(model, targets)))
            allowed = f"all-linear, or linear layers of the model's blocks: {', '.join(targets)}"
            raise InputError("--trainable", f"targets={word}", f"{allowed}, or PEFT's names", near)
        found |= dict.fromkeys(slots)
    return tuple(found)


def adapters_text(adapters: Lora) -> str:
    """Adapters as ``--trainable`` text, defaults included."""
    text = f"lora:rank={adapters.rank},alpha={adapters.alpha:g}"
    text += f",targets={','.join(adapters.targets)}"
    return text if adapters.base_dtype is None else f"{text},base_dtype={adapters.base_dtype}"


def adapters_note(adapters: Lora, trainable: str, model: ModelSpec) -> Assumption:
    """What adapters leave out, and what PEFT's names of their targets mean here."""
    words = _target_words(_values(trainable.partition(":")[2], trainable))
    why = WHY
    for word in words:
        slots = targets_called(word, model, adapters.targets)
        if word not in (*adapters.targets, *ALL_LINEAR):
            why += f"; {word} is {', '.join(slots)}"
            if is_fused(word):
                why += ", each with an adapter of its own where PEFT has one for all"
    if words[0] == "all-linear":
        why += "; all-linear is every linear layer of the blocks but experts and routers"
    return Assumption(path="workload.trainable", value=adapters_text(adapters), why=why)
