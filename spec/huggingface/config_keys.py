"""ConfigKeys: strict reading of a ``config.json``, with a record of defaults taken."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..errors import InputError, NotBuiltError, nearest_divisor
from ..inputs.typed_keys import TypedKeys, json_text
from ..model.model_spec import MAX_LAYERS
from ..report.report import Assumption

LAYERS = "num_hidden_layers"


class ReadKeys(Mapping[str, Any]):
    """A document that remembers which of its keys were asked for."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return self._document[key]

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return key in self._document

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)


class ConfigKeys(TypedKeys):
    """A configuration document, the class of its defaults, and the assumptions made.

    ``names`` maps general names of sizes to the class's own.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        where: str,
        config_class: str,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.read_keys = document if isinstance(document, ReadKeys) else ReadKeys(document)
        super().__init__(self.read_keys, where)
        self.parts: list[ConfigKeys] = []
        self.assumptions: list[Assumption] = []
        self.config_class = config_class
        self.size_defaults: Mapping[str, int] = {}
        self.names = names or {}
        self.prefix = "model"

    def part(self, key: str, config_class: str) -> ConfigKeys:
        """The configuration nested under ``key``; its assumptions join this one's."""
        inner = self.document.get(key)
        if not isinstance(inner, Mapping):
            raise self.error(key, "a configuration")
        config = ConfigKeys(inner, f"{self.where}: {key}", config_class)
        config.assumptions, config.prefix = self.assumptions, f"{self.prefix}.{key}"
        config.parts = self.parts
        self.parts.append(config)
        return config

    def known(self, *keys: str) -> None:
        """Count ``keys`` as read: the family has them, and here they change nothing."""
        self.read_keys.read.update(keys)

    def unread(self) -> Iterator[tuple[str, Any]]:
        """Keys that were not asked for, with their values."""
        document, read = self.read_keys, frozenset(self.read_keys.read)
        return ((key, document[key]) for key in document if key not in read)

    def assume(self, key: str, value: Any, why: str = "") -> None:
        """Record the value taken for ``key`` and why."""
        why = why or f"left out; the default of transformers' {self.config_class}"
        self.assumptions.append(Assumption(path=f"{self.prefix}.{key}", value=value, why=why))

    def size(self, key: str) -> int:
        """A size, under its general name or the class's own.

        Required, but for those of ``size_defaults``.
        """
        present = self.has(key, self.names.get(key, key))
        if present is None and key in self.size_defaults:
            return self.count_or(key, self.size_defaults[key])
        if present is None:
            self.require((key,))
        return self.count(present or key)

    def layer_count(self) -> int:
        """Number of blocks.

        Required, and few enough to be listed one by one.
        """
        count = self.size(LAYERS)
        if count > MAX_LAYERS:
            key = self.has(LAYERS, self.names.get(LAYERS, LAYERS)) or LAYERS
            raise self.error(key, f"at most {MAX_LAYERS}", MAX_LAYERS)
        return count

    def refuse(self, key: str, instead: str) -> NotBuiltError:
        """The error for a known value that is not served."""
        return NotBuiltError(f"{self.where}: {key} {json_text(self.document.get(key))}", instead)

    def choices(self, key: str, count: int, allowed: Collection[str]) -> list[str] | None:
        """A list of ``count`` texts of ``allowed``, one a layer.

        None if left out.
        """
        entries = self.document.get(key)
        if entries is None:
            return None
        valid = isinstance(entries, list) and all(
            isinstance(x, str) and x in allowed for x in entries
        )
        if not valid or len(entries) != count:
            words = f"{count} entries of " + " or ".join(sorted(allowed))
            raise InputError(f"{self.where}: {key}", "other entries", words)
        return list(entries)

    def count_or(self, key: str, default: int) -> int:
        """A whole number, or the default as an assumption."""
        if self.has(key):
            return self.count(key)
        self.assume(key, default)
        return default

    def number_or(self, key: str, default: float) -> float:
        """A number above 0, or the default as an assumption."""
        if self.has(key):
            return self.number(key)
        self.assume(key, default)
        return default

    def flag_or(self, key: str, default: bool) -> bool:
        """A flag, or the default as an assumption."""
        if self.has(key):
            return self.flag(key)
        self.assume(key, default)
        return default

    def text_or(self, key: str, default: str) -> str:
        """A text, or the default as an assumption."""
        if self.has(key):
            return self.text(key)
        self.assume(key, default)
        return default

    def kv_heads(self, heads: int, default: int | None) -> int:
        """Number of key and value heads, which must divide heads.

        null means as many as heads.
        """
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
        """Width of a head.

        Given, the family's default, or hidden divided by heads.
        """
        if self.has("head_dim"):
            return self.count("head_dim")
        if default is not None:
            return self.count_or("head_dim", default)
        if hidden % heads:
            general = "num_attention_heads"
            key = self.has(general, self.names.get(general, general)) or general
            allowed = f"a divisor of the hidden size {hidden}, or a head_dim"
            raise self.error(key, allowed, nearest_divisor(heads, hidden))
        return hidden // heads

    def note_dropout(self, defaults: Mapping[str, float]) -> None:
        """List dropout above zero, given or by default.

        ``defaults`` has the class's keys.
        """
        rates = {}
        for key, default in defaults.items():
            rate = self.number(key, 0, exclusive=False) if self.has(key) else default
            if rate > 0:
                rates[key] = rate
        if rates:
            self.assume("dropout", rates, "dropout is neither priced nor run; it counts as 0")
