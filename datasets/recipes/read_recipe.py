"""Recipes from files."""

from __future__ import annotations

from pathlib import Path

from ..catalogue.documents import read_document
from .data_stage import Stages
from .recipe import Recipe, recipe_of


def read_recipe(path: Path, stages: Stages) -> Recipe:
    """The recipe of a YAML or JSON file.

    Raises:
        InputError: no such file, or no recipe.
    """
    return recipe_of(read_document(path, "a recipe file"), str(path), stages)
