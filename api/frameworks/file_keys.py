"""FileKeys: keys of a framework's file, with those that were read and those that were not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...spec.errors import InputError
from ...spec.inputs.typed_keys import TypedKeys, json_text
from ...spec.limits import MAX_WIDTH
from ...spec.report.report import Assumption

AUTO = "auto"
INACTIVE: tuple[Any, ...] = (None, False, 0, "", "none", "None", "no", AUTO)
"""Values under which a refused key changes nothing."""


class FileKeys(TypedKeys):
    """Keys with dots between sections; ``auto`` is taken as left out.

    Args:
        document: the flat keys.
        where: the file, in errors.
        owner: the framework, in assumptions.
    """

    def __init__(self, document: Mapping[str, Any], where: str, owner: str) -> None:
        said = {key: value for key, value in document.items() if value != AUTO}
        super().__init__(said, where)
        self.owner = owner
        self.assumed: list[Assumption] = []
        self._read: set[str] = set()

    def has(self, *keys: str) -> str | None:
        """The first of ``keys`` that is there and not null."""
        self._read.update(keys)
        return super().has(*keys)

    def require(self, keys: Iterable[str]) -> None:
        """Refuse missing keys."""
        needed = list(keys)
        self._read.update(needed)
        super().require(needed)

    def count(self, key: str, least: int = 1, most: int = MAX_WIDTH) -> int:
        """A whole number between ``least`` and ``most``."""
        self._read.add(key)
        return super().count(key, least, most)

    def text(self, key: str) -> str:
        """A text that is not empty."""
        self._read.add(key)
        return super().text(key)

    def assume(self, path: str, value: Any, why: str) -> Any:
        """Record an assumption, and return its value."""
        self.assumed.append(Assumption(path=path, value=value, why=why))
        return value

    def count_or(self, key: str, default: int, *, note: bool = False) -> int:
        """A whole number, or the framework's default, noted if asked."""
        if self.has(key):
            return self.count(key, least=0)
        return int(self._default(key, default)) if note else default

    def count_if(self, key: str) -> int | None:
        """A positive whole number, or None."""
        return self.count(key) if self.has(key) else None

    def number_or(self, key: str, default: float) -> float:
        """A number, or the framework's default."""
        return self.number(key, exclusive=False) if self.has(key) else default

    def flag_or(self, key: str, default: bool = False) -> bool:
        """A flag, or the framework's default."""
        return self.flag(key) if self.has(key) else default

    def word_or(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        """One of ``allowed`` in any case, or the framework's default."""
        if not self.has(key):
            return default
        folded = {word.casefold(): word for word in allowed}
        found = folded.get(str(self.document[key]).casefold())
        return found if found is not None else self.choice(key, allowed)

    def text_or(self, key: str, default: str) -> str:
        """A text, or the framework's default."""
        return str(self.document[key]).strip() if self.has(key) else default

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse keys that change what is priced and that no plan here says.

        Args:
            reasons: what is meant, by key.

        Raises:
            InputError: for the first of them that is active.
        """
        for key, why in reasons.items():
            if self.has(key) and self.document[key] not in INACTIVE:
                raise self.unsupported(key, why)

    def unsupported(self, key: str, why: str) -> InputError:
        """The error for a key that says what no plan here does."""
        given = json_text(self.document.get(key))
        return InputError(f"{self.where}: {key}", given, f"only {why}")

    @property
    def unread(self) -> tuple[str, ...]:
        """Keys that change nothing known here, in the file's order."""
        return tuple(key for key in self.document if key not in self._read)

    def _default(self, key: str, default: Any) -> Any:
        return self.assume(key, default, f"left out; the default of {self.owner}")
