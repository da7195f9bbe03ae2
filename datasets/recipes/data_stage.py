"""DataStage: the contract of a stage of a data recipe.

A stage of scope ``document`` looks at one document at a time and has ``run`` alone. One of scope
``corpus`` also has ``sketch``, what it must know of each document, made bucket by bucket in any
process, and ``decide``, which sees the sketches of all documents in their order. The order is that
of content, so the outcome cannot depend on files, shards or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .text_document import Outcome, TextDocument

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Named arrays of numbers or bytes: what sketches and decisions consist of, never objects."""
Scope = Literal["document", "corpus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """Surroundings of a stage.

    ``folder``: of the recipe, which its paths are relative to. ``outputs``: where a stage may write
    files of the result, under names of its own. ``windows``: decisions of an earlier ``windows``.
    """

    seed: int
    folder: Path
    tokenizer: str
    domains: tuple[str, ...]
    outputs: Path | None = None
    windows: Arrays = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A part of the corpus, in order; ``first`` is the place of its first document in the whole."""

    first: int
    documents: Sequence[TextDocument]


Run = Callable[[Any, Bucket, Arrays, StageContext], list[Outcome]]
Sketch = Callable[[Any, Bucket, StageContext], Arrays]
Decide = Callable[[Any, Sequence[Arrays], StageContext], Arrays]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStage:
    """One stage.

    ``value``: frozen dataclass of its settings, every default usual. ``run``: outcomes of a
    bucket's documents, one each, from the decisions. ``needs``: modules of the extra ``data`` that
    its functions load. ``facts``: numbers of the decisions that a person is shown.
    """

    name: str
    value: type[Any]
    scope: Scope
    help: str
    run: Run
    sketch: Sketch | None = None
    decide: Decide | None = None
    needs: tuple[str, ...] = ()
    facts: Callable[[Any, Arrays], dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        sees_all = self.sketch is not None and self.decide is not None
        if sees_all != (self.scope == "corpus"):
            raise ValueError(f"{self.name}: a corpus stage has sketch and decide, no other has")


Stages = tuple[DataStage, ...]
