"""ConfigKeys: reads a ``config.json`` of transformers and remembers which defaults it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import InputError, NotBuiltError, nearest_divisor
from .report import Assumption
from .typed_keys import TypedKeys

DROPOUT_DEFAULTS = {
    "gpt2": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    "llama": {"attention_dropout": 0.0},
}
"""Dropout keys and their defaults: GPT-2's, and those of the Llama-like families."""
GPT2_NAMES = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}
WindowRuns = list[tuple[int | None, int]]
"""Runs of consecutive layers with one sliding window: ``(window or None, count)``."""


class ConfigKeys(TypedKeys):
    """A configuration document, the class that its defaults come from, and what was assumed."""

    def __init__(self, document: Mapping[str, Any], where: str, config_class: str) -> None:
        super().__init__(document, where)
        self.assumptions: list[Assumption] = []
        self.config_class = config_class

    def assume(self, key: str, value: Any, why: str = "") -> None:
        """Record the value taken for ``key`` and why."""
        why = why or f"left out; the default of transformers' {self.config_class}"
        self.assumptions.append(Assumption(path=f"model.{key}", value=value, why=why))

    def size(self, key: str) -> int:
        """A required size, under its general name or GPT-2's."""
        found = self.has(key, GPT2_NAMES.get(key, key))
        if found is None:
            self.require((key,))
        return self.count(found or key)

    def count_or(self, key: str, default: int) -> int:
        """A whole number, or the default, which is then an assumption."""
        if self.has(key):
            return self.count(key)
        self.assume(key, default)
        return default

    def number_or(self, key: str, default: float) -> float:
        """A number above 0, or the default, which is then an assumption."""
        if self.has(key):
            return self.number(key)
        self.assume(key, default)
        return default

    def flag_or(self, key: str, default: bool) -> bool:
        """Whether the key is true, or the default, which is then an assumption."""
        if self.has(key):
            return self.flag(key)
        self.assume(key, default)
        return default

    def text_or(self, key: str, default: str) -> str:
        """A text, or the default, which is then an assumption."""
        if self.has(key):
            return self.text(key)
        self.assume(key, default)
        return default

    def kv_heads(self, heads: int, default: int | None) -> int:
        """Key and value heads: null means as many as heads, and they must divide heads."""
        key = "num_key_value_heads"
        if key in self.document and self.document[key] is None:
            return heads
        kv_heads = self.count_or(key, default or heads)
        if heads % kv_heads:
            allowed = f"a divisor of num_attention_heads {heads}"
            raise InputError(
                f"{self.where}: {key}", kv_heads, allowed, nearest_divisor(kv_heads, heads)
            )
        return kv_heads

    def head_dim(self, hidden: int, heads: int, default: int | None = None) -> int:
        """Width of a head: given, the family's default, or hidden divided by heads."""
        if self.has("head_dim"):
            return self.count("head_dim")
        if default is not None:
            return self.count_or("head_dim", default)
        if hidden % heads:
            key = self.has("num_attention_heads", "n_head") or "num_attention_heads"
            allowed = f"a divisor of the hidden size {hidden}, or a head_dim"
            raise self.error(key, allowed, nearest_divisor(heads, hidden))
        return hidden // heads

    def rope_theta(self) -> float:
        """Base of the rotary angles, from its own key or from ``rope_parameters``."""
        parameters = self.document.get("rope_parameters") or {}
        scaling = self.document.get("rope_scaling") or parameters
        if not isinstance(parameters, Mapping) or not isinstance(scaling, Mapping):
            allowed = "rope_scaling and rope_parameters as mappings"
            raise InputError(self.where, "something else", allowed)
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind != "default":
            self.assume("rope_scaling", kind, f"{kind} rope scaling is neither priced nor run")
        key = "partial_rotary_factor"
        partial = parameters.get(key, self.document.get(key))
        if partial not in (None, 1):
            raise NotBuiltError(f"{self.where}: {key} {partial}", "use 1")
        if parameters.get("rope_theta") is not None:
            return TypedKeys(parameters, f"{self.where}: rope_parameters").number("rope_theta")
        return self.number_or("rope_theta", 10000.0)

    def uniform_window(self, layers: int, default: int | None) -> WindowRuns:
        """Mistral: one sliding window for all layers; null, or no default, means none."""
        key = "sliding_window"
        silent = key in self.document and self.document[key] is None
        window = None if default is None or silent else self.count_or(key, default)
        return [(window, layers)]

    def partial_window(self, layers: int) -> WindowRuns:
        """Qwen: a window only if asked for, on the layers of ``layer_types`` or the last ones."""
        asked = self.flag_or("use_sliding_window", False)
        if not asked or self.document.get("sliding_window", 0) is None:
            return [(None, layers)]
        window = self.count_or("sliding_window", 4096)
        types = self.document.get("layer_types")
        if types is None:
            full = self.count("max_window_layers", 0) if self.has("max_window_layers") else 28
            if not self.has("max_window_layers"):
                self.assume("max_window_layers", full)
            full = min(full, layers)
            return [(w, n) for w, n in ((None, full), (window, layers - full)) if n]
        meaning = {"full_attention": None, "sliding_attention": window}
        if not isinstance(types, list) or len(types) != layers or not set(types) <= set(meaning):
            allowed = f"{layers} entries of full_attention or sliding_attention"
            raise InputError(f"{self.where}: layer_types", "other entries", allowed)
        return _runs([meaning[kind] for kind in types])

    def note_dropout(self, family: str) -> None:
        """List dropout above zero, given or by default."""
        rates = {}
        for key, silent in DROPOUT_DEFAULTS[family].items():
            rate = self.number(key, 0, exclusive=False) if self.has(key) else silent
            if rate > 0:
                rates[key] = rate
        if rates:
            self.assume("dropout", rates, "dropout is neither priced nor run; it counts as 0")


def _runs(windows: list[int | None]) -> WindowRuns:
    found: WindowRuns = []
    for window in windows:
        if found and found[-1][0] == window:
            found[-1] = (window, found[-1][1] + 1)
        else:
            found.append((window, 1))
    return found
