"""Rules: lengths, shares of symbols and lines, repeated n-grams, words and addresses of the user's.

The kinds of rules are those of Gopher (Rae et al., arXiv:2112.11446, A.1.1).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, TextDocument, dropped, kept
from ..text_mining.shingles import ngram_hashes, word_hashes

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings; a document that breaks one is dropped.

    ``most_symbols``: share of characters that are neither letters, digits nor spaces.
    ``most_repeated_lines``: share of lines that occurred before. ``most_repeated_ngrams``: share of
    runs of ``ngram`` words that occurred before. ``words``: any of them, as whole words;
    ``addresses``: any of them in the text or the document's name. ``but``: domains left alone.
    """

    least_words: Annotated[int, Field(ge=0)] = 20
    most_words: Annotated[int, Field(ge=1)] = 10**7
    most_symbols: Share = 0.5
    most_repeated_lines: Share = 0.7
    most_repeated_ngrams: Share = 0.7
    ngram: Annotated[int, Field(ge=1, le=50)] = 5
    words: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    but: tuple[str, ...] = ()


def _repeated_share(items: list[Any]) -> float:
    return 1 - len(Counter(items)) / len(items) if items else 0.0


def broken_rule(value: Rules, document: TextDocument) -> str:
    """The first rule that a document breaks; nothing if it keeps all."""
    text = document.text
    words = word_hashes(text)
    if len(words) < value.least_words:
        return "too few words"
    if len(words) > value.most_words:
        return "too many words"
    plain = sum(map(str.isalnum, text)) + sum(map(str.isspace, text))
    if text and 1 - plain / len(text) > value.most_symbols:
        return "too many symbols"
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    if _repeated_share(lines) > value.most_repeated_lines:
        return "repeated lines"
    ngrams = ngram_hashes(words, value.ngram)
    if len(ngrams) and 1 - len(np.unique(ngrams)) / len(ngrams) > value.most_repeated_ngrams:
        return "repeated n-grams"
    banned = [word_hashes(word) for word in value.words]
    if any(len(each) == 1 and each[0] in words for each in banned):
        return "a word of the list"
    if any(address in text or address in document.name for address in value.addresses):
        return "an address of the list"
    return ""


def _run(value: Rules, bucket: Bucket, decisions: Arrays, context: StageContext) -> list[Outcome]:
    outcomes = []
    for document in bucket.documents:
        reason = "" if document.domain in value.but else broken_rule(value, document)
        outcomes.append(dropped(reason) if reason else kept(document))
    return outcomes


STAGE = DataStage(
    name="rules",
    value=Rules,
    scope="document",
    help="Documents that break a rule on lengths, symbols, repetition or words are dropped.",
    run=_run,
)
