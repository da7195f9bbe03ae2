"""Settings of a stack, read from the notes of a run.

Sources write one setting in many ways (``DeepEP dispatcher``, ``cuda-graph-impl``, ``FA3``). A word
is read where it has one meaning; before or after it may stand that it is off. Notes that name two
values of one setting (``FA2/FA3``) say neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..catalogue.stack_settings import all_settings

ALL_TO_ALL = r"(?:all[-\s]?to[-\s]?all|a2a)"
EXPERTS = rf"(?:moe|experts?|expert[-\s]parallel|ep|{ALL_TO_ALL})"
ATTENTION = r"(?:flash[-_\s]?attention|flash[-_\s]?attn|fa)"
LOSS = r"(?:cross[-_\s]?entropy|loss|ce)"
WORDS: tuple[tuple[str, str, str], ...] = (
    (r"hybrid[-_\s]?ep", "dispatcher", "hybridep"),
    (r"deep[-_\s]?ep", "dispatcher", "deepep"),
    (rf"{ALL_TO_ALL}[-_\s](?:token[-_\s])?dispatch(?:er)?", "dispatcher", "alltoall"),
    (rf"dispatcher(?:[-_\s]type)?[=:\s]+{ALL_TO_ALL}", "dispatcher", "alltoall"),
    (r"cuda[-_\s]?graph(?:s|ed|[-_]impl)?", "cuda_graphs", "on"),
    (rf"{ATTENTION}[-_=\s]*v?2", "attention_kernels", "2"),
    (rf"{ATTENTION}[-_=\s]*v?3", "attention_kernels", "3"),
    (r"cudnn[-_\s](?:flash[-_\s]|fused[-_\s])?attention", "attention_kernels", "3"),
    (rf"fused[-_\s]{LOSS}", "loss", "fused"),
    (rf"{LOSS}[-_\s](?:loss[-_\s])?fusion", "loss", "fused"),
    (rf"(?:fused[-_\s]linear|linear|chunked|cut)[-_\s]{LOSS}", "loss", "chunked"),
    (rf"(?:plain|eager|unfused)[-_\s]{LOSS}", "loss", "plain"),
    (r"eager(?![-_\s]?(?:loss|cross|ce\b|attention))", "compile", "off"),
    (r"(?:torch\.)?compiled?", "compile", "on"),
    (r"async[-_\s]?tp|tp[-_\s](?:comm[-_\s])?overlap(?:ped)?", "tp_overlap", "on"),
    (r"overlap[-_\s]grad[-_\s]reduce", "grad_overlap", "on"),
    (r"overlap[-_\s]param[-_\s]gather", "param_overlap", "on"),
    (r"overlap[-_\s]p2p(?:[-_\s]comm\w*)?|p2p[-_\s](?:comm[-_\s])?overlap", "p2p_overlap", "on"),
    (rf"{EXPERTS}[-_\s](?:{ALL_TO_ALL}[-_\s])?(?:comm\w*[-_\s])?overlap(?:ped)?",
     "expert_overlap", "on"),
    (rf"overlap(?:ped|ping|s)?[-_\s](?:of[-_\s])?(?:moe[-_\s])?{EXPERTS}(?:[-_\s]parallel)?"
     r"(?:[-_\s]comm\w*)?", "expert_overlap", "on"),
    (r"moe[-_\s]router[-_\s]fusion|fused[-_\s]router", "router", "fused"),
    (r"moe[-_\s]permute[-_\s]fusion|fused[-_\s]permut(?:e|ation)", "permute", "fused"),
    (r"fp8[-_\s]param[-_\s]gather|(?:fp8|float8)[-_\s]all[-_\s]?gather", "fp8_gather", "on"),
)  # fmt: skip
"""Patterns of words, the setting that they name, and its value."""
OPPOSITE = {"on": "off", "off": "on", "fused": "plain", "deepep": "alltoall",
            "hybridep": "alltoall", "chunked": "plain"}  # fmt: skip
"""What it means that a value is off; other values may be off for any other."""
NOT_BEFORE = r"(?P<no>\b(?:no|not|non|without|w/o|disabled?|never)[-\s]+(?:(?:using|the|any)\s+)?)?"
OFF_AFTER = r"(?P<off>\s*(?:[=:]|is|are|was|were)?\s*(?:off|false|disabled|no|none|0)\b)?"


def read_settings(notes: str) -> Mapping[str, str]:
    """The settings that notes name, each with its one value."""
    values: dict[str, set[str]] = {}
    for key, value in (*_worded(notes.casefold()), *_typed(notes.casefold())):
        values.setdefault(key, set()).add(value)
    return {key: min(named) for key, named in values.items() if len(named) == 1}


def _worded(text: str) -> Iterator[tuple[str, str]]:
    for pattern, key, value in WORDS:
        for match in re.finditer(rf"{NOT_BEFORE}(?<!\w)(?:{pattern})(?!\w){OFF_AFTER}", text):
            is_off = bool(match["no"]) != bool(match["off"])
            meant = OPPOSITE.get(value, "") if is_off else value
            if meant:
                yield key, meant


def _typed(text: str) -> Iterator[tuple[str, str]]:
    """Settings as ``--stack`` takes them."""
    for key, table in all_settings().items():
        words = "|".join(table["values"])
        for match in re.finditer(rf"(?<!\w){key}\s*=\s*({words})(?!\w)", text):
            yield key, match[1]
