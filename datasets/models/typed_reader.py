"""ModelKeys: typed keys of a model, with the defaults of a family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...spec.inputs.typed_keys import TypedKeys
from ...spec.report.report import Assumption

FLAGS = ("tie_embeddings", "qkv_bias", "out_bias", "mlp_bias", "qk_norm")
FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "activation": "swiglu",
        "norm": "rmsnorm",
        "norm_eps": 1e-5,
        "position": "rope",
        "rope_theta": 10000.0,
        **dict.fromkeys(FLAGS, False),
    },
    "gpt2": {
        "activation": "gelu_tanh",
        "norm": "layernorm",
        "norm_eps": 1e-5,
        "position": "learned",
        "rope_theta": 10000.0,
        **dict.fromkeys(FLAGS, True),
        "qk_norm": False,
    },
}


class ModelKeys(TypedKeys):
    """Typed keys with a family's defaults; every default taken is an assumption."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        super().__init__(document, where)
        self.assumptions: list[Assumption] = []
        family = self.choice("family", tuple(FAMILY_DEFAULTS)) if self.has("family") else "llama"
        self.defaults = FAMILY_DEFAULTS[family]
        self.why = f"left out; the default of family {family}"

    def assume(self, key: str, value: Any, why: str = "") -> Any:
        """Record and return the value taken for a missing key."""
        self.assumptions.append(Assumption(path=f"model.{key}", value=value, why=why or self.why))
        return value

    def choice_or_default(self, key: str, allowed: tuple[str, ...]) -> str:
        """One of ``allowed``, or the family's default."""
        if self.has(key):
            return self.choice(key, allowed)
        return str(self.assume(key, self.defaults[key]))

    def flag_or_default(self, key: str) -> bool:
        """A flag, or the family's default."""
        return self.flag(key) if self.has(key) else bool(self.assume(key, self.defaults[key]))

    def number_or_default(self, key: str) -> float:
        """A number above 0, or the family's default."""
        return self.number(key) if self.has(key) else float(self.assume(key, self.defaults[key]))

    def count_if(self, key: str, least: int = 1) -> int | None:
        """A whole number.

        None if left out, for a part that most models lack.
        """
        return self.count(key, least) if self.has(key) else None

    def number_if(self, key: str) -> float | None:
        """A number above 0; None if left out."""
        return self.number(key) if self.has(key) else None

    def flag_if(self, key: str) -> bool:
        """A flag, false if left out."""
        return self.flag(key) if self.has(key) else False

    def choice_if(self, key: str, allowed: tuple[str, ...]) -> str:
        """One of ``allowed``, the first if left out."""
        return self.choice(key, allowed) if self.has(key) else allowed[0]

    def only_with(self, needed: str, *keys: str) -> None:
        """Refuse ``keys`` without the key ``needed``.

        Raises:
            InputError: for the first of them.
        """
        for key in keys:
            if self.has(key) and not self.has(needed):
                raise self.error(key, f"nothing unless {needed} is given")
