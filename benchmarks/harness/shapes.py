"""An item of evidence and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from harness.work import Work

Outcome = Literal["PASS", "MISS", "REPORTED", "UNMEASURED"]

SPEC = ("__init__.py", "spec")
PRICING = (*SPEC, "datasets", "costmodel")
PLANNING = (*PRICING, "planner")
EVERYTHING = (*PLANNING, "kernels", "executor", "profiler", "api")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure and its target.

    ``values`` are the numbers behind ``figure``: SI units, named as in the product.
    """

    name: str
    figure: str
    outcome: Outcome
    target: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def judged(name: str, figure: str, target: str, met: bool, **values: Any) -> Row:
    """A row with a target."""
    return Row(
        name=name, figure=figure, target=target, outcome="PASS" if met else "MISS", values=values
    )


def reported(name: str, figure: str, **values: Any) -> Row:
    """A row without a target."""
    return Row(name=name, figure=figure, outcome="REPORTED", values=values)


def unmeasured(name: str, why: str) -> Row:
    """A row that this machine cannot measure."""
    return Row(name=name, figure=why, outcome="UNMEASURED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cases behind the rows, one a line, as text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The answer of an item.

    ``drawings``: SVG by name, kept beside the results.
    """

    rows: Sequence[Row]
    tables: Sequence[Table] = ()
    drawings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question, in one file of ``items/``.

    ``reads``: files and folders of the repository that the answer depends on, beside the item's
    own file; an answer stands while they hold the same code. ``timed``: other work on the machine
    changes the answer. ``full_target``: the target of the long form, if there is one.
    """

    name: str
    shows: str
    target: str
    run: Callable[[Work], Evidence]
    full_target: str = ""
    reads: tuple[str, ...] = EVERYTHING
    timed: bool = False


def overall(rows: Sequence[Mapping[str, Any]]) -> Outcome:
    """The worst outcome; figures without a target do not hide a PASS."""
    outcomes = {row["outcome"] for row in rows}
    for outcome in ("MISS", "UNMEASURED", "PASS", "REPORTED"):
        if outcome in outcomes:
            return outcome
    return "REPORTED"
