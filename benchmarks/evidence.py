"""The long checks: each item of ``items/`` asks one question and answers it with figures.

    make evidence                          every item whose inputs changed since its answer
    … benchmarks/evidence.py --list        the items, and which answers stand
    … benchmarks/evidence.py --only NAME…  these items
    … --again                              also where the answer stands, from the start
    … --minutes N                          begin no item, and no part of a long one, after so many
    … --quick                              a glance at each; prints, keeps no figure

A run that was stopped goes on where it was. RESULTS.md and results.json are written after
every item.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import ledger
from harness.machine import BUSY, load, machine
from harness.places import BENCHMARKS, ROOT, STATE, commit, inputs_hash
from harness.shapes import Evidence, Item, Row
from harness.work import Work

NAMES = (
    "oracle",
    "monotone",
    "bounds",
    "neighbours",
    "hf_blocks",
    "planner_mutants",
    "plan_mutants",
    "search_quality",
    "mixed_clusters",
    "schedules",
    "published",
    "coverage",
    "published_families",
    "published_picks",
    "kernels",
    "validation",
    "distributed",
    "checkpoints",
    "faults",
    "tracked_peak",
    "damaged_files",
    "service_hostile",
    "service_kills",
    "service",
    "service_load",
    "service_soak",
    "planner_speed",
    "planner_scale",
    "galvatron_speed",
    "simulate_speed",
    "accuracy",
    "mixed_runs",
    "gpu",
)
"""Every item, in the order of RESULTS.md; what other work would disturb comes late."""


def items(names: Sequence[str] = NAMES) -> list[Item]:
    """The items of these names; one is loaded only when it is asked for."""
    found = []
    for name in names:
        file = item_file(name)
        item = importlib.import_module(f"items.{file.parent.name}.{name}").ITEM
        if not isinstance(item, Item) or item.name != name:
            raise TypeError(f"{file}: ITEM is not an Item called {name}")
        found.append(item)
    return found


def item_file(name: str) -> Path:
    """The file of an item."""
    (file,) = (BENCHMARKS / "items").glob(f"*/{name}.py")
    return file


def places(item: Item) -> list[Path]:
    """Everything that an item's answer depends on."""
    return [item_file(item.name), *(ROOT / place for place in item.reads)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run items; 0 if each gave an answer, PASS or MISS, 1 if one broke."""
    options = _options(arguments)
    # Profiles that a person measured are neither used nor added to.
    for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
        os.environ[f"XDG_{kind}_HOME"] = str(STATE / "user" / kind.lower())
    # Children must not find our folders under the bare names of other distributions.
    os.environ["PYTHONSAFEPATH"] = "1"
    chosen = items(options.only or NAMES)
    if options.list:
        for item in chosen:
            print(_listed(item))
        return 0
    broken, start_s = [], time.monotonic()
    for item in chosen:
        left = options.minutes and options.minutes - (time.monotonic() - start_s) / 60
        if left is not None and left <= 0:
            print(f"not begun, the time is up: {item.name}", file=sys.stderr)
        elif not _answer(item, options.again, options.quick, left):
            broken.append(item.name)
    if broken:
        print(f"no answer from: {', '.join(broken)}", file=sys.stderr)
    return int(bool(broken))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="evidence.py", description="Run the long checks.")
    parser.add_argument("--list", action="store_true", help="list the items and stop")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NAMES, help="these items")
    parser.add_argument("--again", action="store_true", help="also where the answer stands")
    parser.add_argument("--minutes", type=float, help="begin nothing long after so many")
    parser.add_argument("--quick", action="store_true", help="a glance; figures are not kept")
    return parser.parse_args(arguments)


def _listed(item: Item) -> str:
    stands = Work(item.name, inputs_hash(places(item))).is_done
    state, timed = "stands" if stands else "to run", "timed" if item.timed else ""
    return f"{item.name:16} {state:7} {timed:6} {item.shows}"


def _answer(item: Item, again: bool, quick: bool, minutes: float | None = None) -> bool:
    """Run an item and write its answer down; False where it broke."""
    inputs = inputs_hash(places(item))
    work = Work(item.name, inputs, quick, minutes=minutes)
    if again or quick:
        work.forget()
    if work.is_done:
        work.say("stands; --again runs it once more")
        return True
    work.tidy()
    work.say("begins" + (", at a glance" if quick else ""))
    before, start_s = load(), time.monotonic()
    if item.timed and before > BUSY:
        work.say(f"something else is at work here (load {before}); its figures will show it")
    try:
        evidence = item.run(work)
        works = True
    except Exception as error:
        traceback.print_exc()
        why = f"broke: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        evidence, works = Evidence(rows=[Row(name="run", figure=why, outcome="MISS")]), False
    about = {
        "machine": machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": round(work.kept_s + time.monotonic() - start_s, 1),
        "commit": commit(places(item)),
        "load": [before, load()],
    }
    _show(evidence)
    if not quick:
        final = works and evidence.complete and inputs_hash(places(item)) == inputs
        _keep(item, work, evidence, about, final)
    return works


def _keep(item: Item, work: Work, evidence: Evidence, about: dict[str, Any], final: bool) -> None:
    """Write the answer; it stands if it is ``final``, else the next run asks again."""
    answers = ledger.read()
    answers[item.name] = ledger.entry(item, evidence, about)
    ledger.draw(evidence)
    ledger.write(answers, NAMES)
    if final:
        work.finish()
    else:
        work.say("goes on next time: it broke, is not complete, or its inputs changed")


def _show(evidence: Evidence) -> None:
    for row in evidence.rows:
        target = f" (target {row.target})" if row.target else ""
        print(f"{row.outcome:10} {row.name}: {row.figure}{target}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
