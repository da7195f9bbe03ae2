"""The planner on published runs: picks among measured layouts, and gains.

Picks: the plan search runs under pins on what a row prints, once for each measured layout, and the
layout whose plan is predicted fastest is the pick; layouts of which no plan fits are left out. What
no row prints (sharding, where the layers are cut) the planner chooses, so its plan is not always
the one that was measured; beside it stands the pick among plans as ``plan validate`` reads them,
layers cut evenly. Gains: the same question without pins, at the same prices. Those say that the
search is not worse than people, not that the prices are right.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness import published_gains as plans_of
from harness.shapes import PLANNING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from published.published_groups import Pick, groups, pick_of, picked, regret
from published.published_plans import PUBLISHERS

from shardwright.api.validation.validate import validate

AT_A_GLANCE = 1
GROUPS = 13
"""Groups of layouts in the short form."""


def run(work: Work) -> Evidence:
    """Pick among measured layouts, then plan anew what others published."""
    picks = _picks(work)
    plans = {publisher: plans_of.planned(work, publisher) for publisher in PUBLISHERS}
    rows = _regrets(picks, validate()["by_source"], judges=work.full)
    for publisher, planned in plans.items():
        rows += plans_of.figures(publisher, planned)
    tables = [_pick_table(picks)]
    tables += [plans_of.plan_table(publisher, planned) for publisher, planned in plans.items()]
    tables += [plans_of.term_table(plans), plans_of.left_out_table(plans)]
    return Evidence(rows=rows, tables=tables)


def _picks(work: Work) -> list[dict[str, Any]]:
    """Every group with the layouts that were measured."""
    by_name = {group.name: group for group in groups()}
    names = work.sample(list(by_name), GROUPS, AT_A_GLANCE)

    def one(key: str) -> dict[str, Any]:
        group = by_name[key.removeprefix("group ")]
        return {
            "source": group.source,
            "name": group.name,
            "layouts": [asdict(picked(rows)) for rows in group.layouts],
        }

    return work.pieces([f"group {name}" for name in names], one)


def _regrets(
    picks: Sequence[dict[str, Any]], validated: Mapping[str, Any], judges: bool
) -> list[Row]:
    """The mean regret of each source beside that of ``plan validate``.

    It is judged where all groups are there, as in ``plan validate``.
    """
    by_source: dict[str, list[dict[str, Any]]] = {}
    for piece in picks:
        by_source.setdefault(piece["source"], []).append(piece)
    rows = []
    for source, source_pieces in by_source.items():
        ours, as_read = (
            statistics.fmean(_regret(piece, how) for piece in source_pieces)
            for how in (False, True)
        )
        validate_regret = validated[source]["top1_regret"]
        name = f"{source}: mean regret of the planner's pick"
        values = {"validate_regret": validate_regret, "groups": len(source_pieces)}
        over = f"over {len(source_pieces)} groups"
        figure = f"{ours:.2%} {over}; plan validate prints {validate_regret:.2%}"
        if judges:
            target = "no higher than plan validate's"
            rows.append(
                judged(name, figure, target, ours <= validate_regret, regret=ours, **values)
            )
        else:
            rows.append(reported(name, figure, regret=ours, **values))
        rows.append(
            reported(
                f"{name} among the plans as read: blanks filled, layers cut evenly",
                f"{as_read:.2%} {over}, of layouts that are judged to fit",
                regret=as_read,
                **values,
            )
        )
    return rows


def _layouts(piece: dict[str, Any]) -> list[Pick]:
    return [Pick(**layout) for layout in piece["layouts"]]


def _regret(piece: dict[str, Any], as_read: bool = False) -> float:
    layouts = _layouts(piece)
    pick = pick_of(layouts, as_read)
    return float("inf") if pick is None else regret(pick, layouts)


def _pick_table(picks: Sequence[dict[str, Any]]) -> Table:
    rows = []
    for piece in picks:
        layouts = _layouts(piece)
        pick = pick_of(layouts)
        best = min(layouts, key=lambda layout: layout.measured_s)
        rows.append(
            (
                piece["name"],
                f"{sum(p.predicted_s is not None for p in layouts)} of {len(layouts)}",
                "none fits" if pick is None else _shown(pick),
                _shown(best),
                f"{_regret(piece):.1%}",
                f"{_regret(piece, as_read=True):.1%}",
            )
        )
    columns = ("question", "layouts that fit", "our pick", "measured fastest", "regret", "as read")
    return Table(title="Groups of five layouts or more", columns=columns, rows=rows)


def _shown(pick: Pick) -> str:
    predicted = "does not fit" if pick.predicted_s is None else f"{pick.predicted_s:.3g} s"
    layout = ", ".join(p for p in pick.layout.split(", ") if not p.endswith("=1"))
    return f"{layout or 'data only'}: predicted {predicted}, measured {pick.measured_s:.3g} s"


ITEM = Item(
    name="published_picks",
    shows="Which measured layout the planner takes, and what it gains over published plans.",
    target=(
        "95 % of published configurations are plans of ours, and fit; ours never slower under the "
        "same prices; a third of the layouts and configurations, drawn."
    ),
    full_target=(
        "a mean regret no higher than plan validate's for each source; 95 % of published "
        "configurations are plans of ours, and fit; ours never slower under the same prices."
    ),
    run=run,
    reads=(
        *PLANNING,
        "api",
        "tests/support/published/published_plans.py",
        "tests/support/published/published_groups.py",
    ),
)
