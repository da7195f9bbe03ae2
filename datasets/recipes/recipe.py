"""Recipe: sources, stages, mixture, windows, tokenizer and seed of prepared data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from ...spec.codec import content_hash, from_document, to_document
from ...spec.errors import InputError, UnknownKeyError
from .data_stage import DataStage, Stages

SCHEMA_VERSION = 1
BYTES = "bytes"
"""The tokenizer without a file: a token a byte of UTF-8."""
LAST_STAGES = ("mixture", "windows", "tokens")
"""Stages that every recipe has or leaves out under keys of their own, in this order."""
Format = Literal["text", "jsonl", "parquet", "html", "warc"]
Name = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource:
    """Files of one domain.

    ``path``: a file or folder; ``pattern``: of files in it. ``format``: None for that of each
    file's suffix. ``text``, ``id``: fields of records, the second may be missing.
    """

    name: Name
    domain: Name
    path: Name
    pattern: str = "**/*"
    format: Format | None = None
    text: Name = "text"
    id: Name = "id"


@dataclass(frozen=True, slots=True)
class StageUse:
    """A stage by name, and its settings."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A data recipe; equal recipes have equal hashes.

    ``mixture``, ``windows``: settings of the stages of these names; None leaves them out.
    """

    schema_version: int = SCHEMA_VERSION
    sources: tuple[TextSource, ...]
    stages: tuple[StageUse, ...] = ()
    mixture: Any = None
    windows: Any = None
    tokenizer: str = BYTES
    seed: int = 0

    @property
    def domains(self) -> tuple[str, ...]:
        """Domains of the sources, sorted."""
        return tuple(sorted({source.domain for source in self.sources}))

    def document(self) -> dict[str, Any]:
        """The recipe as JSON: settings that are usual are left out, the version never is."""
        document: dict[str, Any] = to_document(self)
        return {**document, "schema_version": self.schema_version}

    @property
    def hash(self) -> str:
        """Content hash of the document."""
        return content_hash(self.document())


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypedStage:
    name: str
    value: dict[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypedRecipe:
    schema_version: int = SCHEMA_VERSION
    sources: Annotated[tuple[TextSource, ...], Field(min_length=1)]
    stages: tuple[_TypedStage, ...] = ()
    mixture: dict[str, JsonValue] | None = None
    windows: dict[str, JsonValue] | None = None
    tokenizer: Name = BYTES
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


def recipe_of(document: Mapping[str, Any], where: str, stages: Stages) -> Recipe:
    """The recipe of a JSON document; ``stages`` are those that it may name.

    Raises:
        InputError: an unknown stage or key, or a value out of range, with the nearest.
    """
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise InputError(f"{where}: schema_version", version, f"{SCHEMA_VERSION}", SCHEMA_VERSION)
    known = [field.name for field in dataclasses.fields(_TypedRecipe)]
    for key in document:
        if key not in known:
            raise UnknownKeyError(where, str(key), known)
    plain = {**document, "stages": _plain_stages(document.get("stages") or (), where)}
    typed = from_document(_TypedRecipe, plain, where)
    recipe = Recipe(
        sources=typed.sources,
        stages=tuple(_stage_use(each, where, stages) for each in typed.stages),
        mixture=_last(typed.mixture, "mixture", where, stages),
        windows=_last(typed.windows, "windows", where, stages),
        tokenizer=typed.tokenizer,
        seed=typed.seed,
    )
    _check(recipe, where)
    return recipe


def _plain_stages(given: Any, where: str) -> list[Any]:
    """Stages in one form; people write a name, or a name with its settings."""
    if not isinstance(given, (list, tuple)):
        raise InputError(f"{where}: stages", given, "a list of stages")
    plain: list[Any] = []
    for each in given:
        if isinstance(each, str):
            plain.append({"name": each})
        elif isinstance(each, Mapping) and len(each) == 1 and "name" not in each:
            ((name, value),) = each.items()
            plain.append({"name": name, "value": value or {}})
        else:
            plain.append(each)
    return plain


def stage_named(name: str, where: str, stages: Stages) -> DataStage:
    """The stage of a name.

    Raises:
        UnknownKeyError: none, with the nearest.
    """
    for stage in stages:
        if stage.name == name:
            return stage
    raise UnknownKeyError(where, name, [stage.name for stage in stages])


def _stage_use(typed: _TypedStage, where: str, stages: Stages) -> StageUse:
    stage = stage_named(typed.name, f"{where}: stages", stages)
    if stage.name in LAST_STAGES:
        allowed = f"{stage.name} as a key of the recipe, for it comes after all others"
        raise InputError(f"{where}: stages", stage.name, allowed, f"{stage.name}: …")
    return StageUse(stage.name, _value(stage, typed.value, where))


def _last(given: dict[str, Any] | None, name: str, where: str, stages: Stages) -> Any:
    return None if given is None else _value(stage_named(name, where, stages), given, where)


def _value(stage: DataStage, given: Mapping[str, Any], where: str) -> Any:
    return from_document(stage.value, dict(given), f"{where}: {stage.name}")


def _check(recipe: Recipe, where: str) -> None:
    names = [source.name for source in recipe.sources]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: sources", f"{name} twice", "each name once")
    used = [use.name for use in recipe.stages]
    for name in used:
        if used.count(name) > 1:
            raise InputError(f"{where}: stages", f"{name} twice", "each stage once")
    values = [(use.name, use.value) for use in recipe.stages]
    values += [("mixture", recipe.mixture), ("windows", recipe.windows)]
    for name, value in values:
        check = getattr(value, "check", None)
        if check is not None:
            check(f"{where}: {name}", recipe.domains)


__all__ = [
    "BYTES",
    "LAST_STAGES",
    "Recipe",
    "StageUse",
    "TextSource",
    "recipe_of",
    "stage_named",
]
