"""Requests of ``datasets/published/expert_requests.toml``, as words of commands."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwright.datasets.published import names

TABLE = names.TABLE.with_name("expert_requests.toml")
KINDS = ("one box", "tens", "hundreds", "thousands")
SUBJECTS = ("dense", "experts", "adapters", "long")
TOLD = ("name", "kind", "about", "why", "source", "differs", "expert")
"""Keys that are no flags of ``plan``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question to ``plan``, and the plan that an expert would run.

    ``asked`` are flags of ``plan``; ``expert`` those of ``plan simulate`` that say the plan.
    """

    name: str
    kind: str
    about: str
    why: str
    source: str
    asked: Mapping[str, Any]
    expert: Mapping[str, Any]

    @property
    def stack(self) -> str:
        """The training software that is asked for."""
        return str(self.asked["stack"])

    @property
    def plan_words(self) -> list[str]:
        """The question, in words of ``plan``."""
        return _words(self.asked)

    @property
    def simulate_words(self) -> list[str]:
        """The expert's plan, in words of ``plan simulate``."""
        return _words({**self.asked, **self.expert})


def expert_requests() -> list[Request]:
    """Every request, in the order of the file."""
    with TABLE.open("rb") as file:
        return [_request(row) for row in tomllib.load(file)["request"]]


def _request(row: Mapping[str, Any]) -> Request:
    asked = {key: value for key, value in row.items() if key not in TOLD}
    told = {key: row[key] for key in TOLD if key in row and key != "differs"}
    return Request(**told, asked=asked)


def _words(flags: Mapping[str, Any]) -> list[str]:
    words = ((f"--{name.replace('_', '-')}", str(value)) for name, value in flags.items())
    return [word for pair in words for word in pair]
