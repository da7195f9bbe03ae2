"""Language: documents of other languages, or of none for sure, are dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, dropped, kept

READ_CHARACTERS = 20_000
"""Of a document, enough to know its language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Settings.

    ``languages``: ISO 639-1 codes that stay. ``probability``: least one. ``but``: domains that are
    left alone.
    """

    languages: Annotated[tuple[str, ...], Field(min_length=1)] = ("en",)
    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    but: tuple[str, ...] = ("code",)


_loaded: list[Any] = []


def identify(text: str) -> tuple[str, float]:
    """Language and probability of a text."""
    if not _loaded:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        _loaded.append(LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True))
    language, probability = _loaded[0].classify(text[:READ_CHARACTERS])
    return str(language), float(probability)


def _run(
    value: Language, bucket: Bucket, decisions: Arrays, context: StageContext
) -> list[Outcome]:
    outcomes = []
    for document in bucket.documents:
        if document.domain in value.but:
            outcomes.append(kept(document))
            continue
        found, probability = identify(document.text)
        if found not in value.languages:
            outcomes.append(dropped(f"language {found}"))
        elif probability < value.probability:
            outcomes.append(dropped("language unsure"))
        else:
            outcomes.append(kept(document))
    return outcomes


STAGE = DataStage(
    name="language",
    value=Language,
    scope="document",
    help="Documents in other languages are dropped.",
    run=_run,
    needs=("py3langid",),
)
