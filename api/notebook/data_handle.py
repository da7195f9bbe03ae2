"""Python handle of a data recipe and of prepared data: ``sw.data(recipe).run(out)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...datasets.preparation.result import read_data
from ...datasets.recipes.recipe import Recipe
from ..html.report import html_table
from ..recipes.prepare_data import prepare_data, recipe_at, recipe_from
from .frames import frame

if TYPE_CHECKING:
    from .plots.canvas import Picture

DRY_RUN_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, repr=False)
class PreparedData:
    """Prepared data, or an estimate of it."""

    document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that ``plan data --json`` writes."""
        return self.document

    def records(self) -> list[dict[str, Any]]:
        """Documents, tokens and bytes left by each stage, and its seconds."""
        is_data = self.document["kind"] == "data"
        return [
            {
                "stage": stage["name"],
                **(stage["total"] if is_data else stage)["out"],
                "seconds": (
                    self.document["seconds"][stage["name"]]["all"] if is_data else stage["seconds"]
                ),
            }
            for stage in self.document["stages"]
        ]

    def to_frame(self) -> Any:
        """Return a DataFrame of the stages.

        Raises:
            InputError: pandas is not installed.
        """
        return frame(self.records())

    def plot(self) -> Picture:
        """Tokens left by each stage.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.data import data_picture

        return data_picture(self.records())

    def __repr__(self) -> str:
        rows = self.records()
        kind = "PreparedData" if self.document["kind"] == "data" else "Estimate of PreparedData"
        return f"<{kind}: {rows[-1]['tokens']:,} of {rows[0]['tokens']:,} tokens left>"

    def _repr_html_(self) -> str:
        """Show the stages in a notebook."""
        heads = ("stage", "documents", "tokens", "bytes", "seconds")
        rows = [
            [escape(str(row["stage"])), *(f"{row[unit]:,}" for unit in heads[1:4]),
             f"{row['seconds']:.2f}"]
            for row in self.records()
        ]  # fmt: skip
        return f"<div><p>{escape(repr(self)[1:-1])}</p>{html_table(heads, rows)}</div>"


@dataclass(frozen=True, kw_only=True, repr=False)
class DataRecipe:
    """A recipe that can be run."""

    recipe: Recipe
    folder: Path

    def run(self, out: str | Path, *, jobs: int = 1, sample: float = 1.0) -> PreparedData:
        """Prepare data in a folder; a stopped preparation goes on.

        Args:
            out: folder of the result.
            jobs: processes.
            sample: share of the texts, above 0.
        """
        document = prepare_data(self.recipe, self.folder, Path(out), jobs, sample)
        return PreparedData(document=document)

    def dry_run(self, *, sample: float = DRY_RUN_SHARE, jobs: int = 1) -> PreparedData:
        """Estimate the preparation from a sample."""
        return PreparedData(document=prepare_data(self.recipe, self.folder, None, jobs, sample))

    def __repr__(self) -> str:
        names = ", ".join(use.name for use in self.recipe.stages) or "no stage"
        return f"<DataRecipe of {len(self.recipe.sources)} sources: {names}>"


def data(recipe: str | Path | Mapping[str, Any]) -> DataRecipe | PreparedData:
    """A recipe to run, or prepared data.

    Args:
        recipe: path of a recipe or of a folder of prepared data, or a recipe's keys.
    """
    if isinstance(recipe, Mapping):
        return DataRecipe(recipe=recipe_from(dict(recipe)), folder=Path.cwd())
    path = Path(recipe).expanduser()
    if path.is_dir():
        return PreparedData(document=read_data(path))
    return DataRecipe(recipe=recipe_at(path), folder=path.absolute().parent)
