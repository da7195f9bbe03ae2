"""Boilerplate planted in many forms into the prose of Python's library."""

from __future__ import annotations

import ast
import random

from harness.shapes import PRICING, Evidence, Item, Row, judged, reported
from harness.work import Work
from support.recipes.corpus import corpus
from support.recipes.recipe_runs import stage_context, web_documents

from shardwright.datasets.pipelines import repeated_sentences
from shardwright.datasets.recipes.data_stage import Bucket

SENTENCES, FORMS, WORDS = 1000, 20, 8
LEAST_GONE, MOST_OTHER = 0.99, 0.005
LEAST_PROSE = 500
"""Characters of docstrings that make a document."""
CONTEXT = stage_context("web")


def run(work: Work) -> Evidence:
    """The stage on prose without and with what is planted."""
    texts = [prose for r in corpus()["library"] if len(prose := _prose(r["text"])) > LEAST_PROSE]
    return Evidence(rows=_rows(texts, work.sized(SENTENCES, 50)))


def _rows(texts: list[str], sentences: int) -> list[Row]:
    draw = random.Random(0)
    vocabulary = sorted({w for text in texts[:100] for w in text.split() if w.isalpha()})
    lines = [text.splitlines(keepends=True) for text in texts]
    planted: set[str] = set()
    for _ in range(sentences):
        base = " ".join(draw.choice(vocabulary).lower() for _ in range(WORDS))
        for form, place in enumerate(draw.sample(range(len(lines)), FORMS)):
            line = f"{_in_form(base, form)}\n"
            planted.add(line)
            lines[place].insert(draw.randint(0, len(lines[place])), line)
    left = _left(["".join(each) for each in lines])
    still = sum(line in planted for text in left for line in text.splitlines(keepends=True))
    kept = sum(
        len(line)
        for text in left
        for line in text.splitlines(keepends=True)
        if line not in planted
    )
    total, natural = sum(map(len, texts)), sum(map(len, _left(texts)))
    gone = 1 - still / (sentences * FORMS)
    other = 1 - kept / total
    return [
        reported("prose", f"{len(texts)} documents, {total / 1e6:.1f} M characters; "
                 f"{1 - natural / total:.2%} cut where nothing is planted"),
        judged(f"{sentences} sentences in {FORMS} forms each: gone", f"{gone:.2%}",
               f"at least {LEAST_GONE:.0%}", gone >= LEAST_GONE, gone=gone),
        judged("other text cut", f"{other:.3%}", f"at most {MOST_OTHER:.1%}",
               other <= MOST_OTHER, cut=other),
    ]  # fmt: skip


def _prose(code: str) -> str:
    """Docstrings of a module, a paragraph apart."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return "".join(f"{each}\n\n" for each in found if each)


def _in_form(base: str, form: int) -> str:
    """One of 20 spellings: case, numbers, punctuation, spaces."""
    text = (base, base.upper(), base.capitalize(), base.title())[form % 4]
    head = ("", f"{form}. ", f"[{1990 + form}] ", "* ", "-- ")[form // 4]
    return f"{head}{text.replace(' ', '  ' if form % 3 == 1 else ' ')}{'.!,;'[form % 4]} {form}"


def _left(texts: list[str]) -> list[str]:
    value = repeated_sentences.RepeatedSentences()
    bucket = Bucket(first=0, documents=web_documents(texts))
    sketch = repeated_sentences.STAGE.sketch(value, bucket, CONTEXT)
    decisions = repeated_sentences.STAGE.decide(value, [sketch], CONTEXT)
    outcomes = repeated_sentences.STAGE.run(value, bucket, decisions, CONTEXT)
    return [outcome.text or "" for outcome in outcomes]


ITEM = Item(
    name="data_sentences",
    shows="Sentences that many documents have are cut in all their forms, and little else is.",
    target="Of 1,000 planted sentences in 20 forms 99 % gone, and at most 0.5 % of other text.",
    run=run,
    reads=(*PRICING, "benchmarks/support/recipes"),
)
