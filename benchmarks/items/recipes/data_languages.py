"""Languages of Debian's manuals and Python's documentation, where they are installed."""

from __future__ import annotations

from harness.shapes import PRICING, Evidence, Item, Row, judged, unmeasured
from harness.work import Work
from support.recipes.corpus import Records
from support.recipes.recipe_runs import documents_of, stage_context
from support.recipes.system_texts import Manuals, manuals, python_documentation

from shardwright.datasets.pipelines import language
from shardwright.datasets.recipes.data_stage import Bucket

PAGES, LEAST_RIGHT = 300, 0.98
LANGUAGES = {"en": "English", "de": "German", "fr": "French"}
WANTED = "groff, manpages, manpages-de, manpages-fr and python3-doc of Debian bring them"


def run(work: Work) -> Evidence:
    """Every domain that is here, under a recipe for each language."""
    count = work.sized(PAGES, 20)
    domains = {
        f"manuals in {name}": (code, manuals(code, count)) for code, name in LANGUAGES.items()
    }
    domains["Python's documentation"] = ("en", Manuals(python_documentation(count)))
    rows = [_row(name, code, *found) for name, (code, found) in domains.items()]
    return Evidence(rows=rows)


def _row(name: str, code: str, records: Records, untranslated: tuple[str, ...]) -> Row:
    if not records:
        return unmeasured(name, f"not here: {WANTED}")
    share = _right(records, code) / len(records)
    apart = f"; {len(untranslated)} left out, mostly the English page" if untranslated else ""
    return judged(
        f"{name}: kept for their language, dropped for the others",
        f"{share:.2%} of {len(records)}{apart}", f"at least {LEAST_RIGHT:.0%}",
        share >= LEAST_RIGHT, right=share, untranslated=untranslated,
    )  # fmt: skip


def _right(records: Records, own: str) -> int:
    documents = documents_of({"s": records})
    is_right = [True] * len(documents)
    for code in LANGUAGES:
        value = language.Language(languages=(code,), but=())
        bucket = Bucket(first=0, documents=documents)
        context = stage_context(*sorted({document.domain for document in documents}))
        outcomes = language.STAGE.run(value, bucket, {}, context)
        is_right = [
            before and (outcome.text is not None) == (code == own)
            for before, outcome in zip(is_right, outcomes, strict=True)
        ]
    return sum(is_right)


ITEM = Item(
    name="data_languages",
    shows="Documents keep to their language: manuals in three, and Python's documentation.",
    target=(
        "98 % right; domains that are not installed are named. Pages more than half of whose runs "
        "of five words are in the English page of their name are untranslated, and left out."
    ),
    run=run,
    reads=(*PRICING, "benchmarks/support/recipes"),
)
