"""What an item of evidence is, and what it brings back."""

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
    """One figure, and how it stands to its target.

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
    """A row that nothing is asked of."""
    return Row(name=name, figure=figure, outcome="REPORTED", values=values)


def unmeasured(name: str, why: str) -> Row:
    """A row for what this machine cannot show."""
    return Row(name=name, figure=why, outcome="UNMEASURED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What lies behind the rows: one line a case, cells as a person reads them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a run of an item found; the next run goes on where it is not ``complete``.

    ``drawings``: SVG by name, which are kept beside the results.
    """

    rows: Sequence[Row]
    tables: Sequence[Table] = ()
    drawings: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question, in one file of ``items/``.

    ``reads`` are files and folders of the repository that the answer depends on beside the
    item's own file; while they stay as they are, an answer stands. ``timed`` marks answers that
    other work on the machine changes.
    """

    name: str
    shows: str
    target: str
    run: Callable[[Work], Evidence]
    reads: tuple[str, ...] = EVERYTHING
    timed: bool = False


def overall(rows: Sequence[Mapping[str, Any]]) -> Outcome:
    """One word for all rows: the worst of them; figures without a target do not hide a PASS."""
    found = {row["outcome"] for row in rows}
    for outcome in ("MISS", "UNMEASURED", "PASS", "REPORTED"):
        if outcome in found:
            return outcome
    return "REPORTED"
