"""The long checks: each item of ``items/`` answers one question with figures.

    make evidence                          every item whose inputs changed since its answer
    … benchmarks/evidence.py --list        the items, and which answers stand
    … benchmarks/evidence.py --only NAME…  these items
    … --full                               their long forms, recorded apart
    … --again                              also where the answer stands, from the start
    … --minutes N                          begin no item after so many
    … --quick                              a glance at each; prints, keeps no figure
    … --rekey [COMMIT]                     key the records made at a commit (at any) by its code

A stopped run resumes. The pages and results.json are written after every item.
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

from harness import ledger, rekey
from harness.content_key import content_key, digests, key_of
from harness.machine import BUSY, load, machine
from harness.paths import BENCHMARKS, ROOT, STATE, commit, commit_seed
from harness.shapes import Evidence, Item, Row
from harness.work import Form, Work

NAMES = (
    "oracle",
    "monotone",
    "bounds",
    "neighbors",
    "hf_blocks",
    "configurations",
    "planner_mutants",
    "plan_mutants",
    "search_quality",
    "everyday_gaps",
    "expert_requests",
    "stack_answers",
    "frameworks",
    "framework_parsers",
    "diagnose_size",
    "agents",
    "heterogeneous_clusters",
    "schedules",
    "lanes",
    "tiers",
    "activation_swap",
    "quantized_communication",
    "frontier",
    "tp_overlap",
    "expert_pipelining",
    "published",
    "coverage",
    "published_families",
    "published_picks",
    "kernels",
    "programs",
    "validation",
    "distributed",
    "activation_swap_ranks",
    "nested_degrees",
    "quantized_training",
    "checkpoints",
    "checkpoint_beside_torch",
    "checkpoint_price",
    "faults",
    "tracked_peak",
    "addresses",
    "damaged_files",
    "code_mutants",
    "service_hostile",
    "service_attack",
    "service_kills",
    "service_outages",
    "service",
    "service_load",
    "service_soak",
    "planner_speed",
    "levers_search",
    "planner_scale",
    "galvatron_speed",
    "simulate_speed",
    "accuracy",
    "heterogeneous_runs",
    "message_order",
    "throttled_ranks",
    "throttled_shardings",
    "expert_pipelining_ranks",
    "tp_overlap_ranks",
    "expert_balance",
    "expert_load",
    "data_duplicates",
    "data_sentences",
    "data_languages",
    "data_peer",
    "data_lengths",
    "data_same_bytes",
    "data_dry_run",
    "data_windows",
    "data_late_positions",
    "data_ablation",
    "gpu",
)
"""Every item, in the order of RESULTS.md; what other work would disturb comes late."""


def items(names: Sequence[str] = NAMES) -> list[Item]:
    """The items of these names, imported on demand."""
    loaded = []
    for name in names:
        file = item_file(name)
        item = importlib.import_module(f"items.{file.parent.name}.{name}").ITEM
        if not isinstance(item, Item) or item.name != name:
            raise TypeError(f"{file}: ITEM is not an Item called {name}")
        loaded.append(item)
    return loaded


def item_file(name: str) -> Path:
    """The file of an item."""
    (file,) = (BENCHMARKS / "items").glob(f"*/{name}.py")
    return file


def inputs(item: Item) -> list[Path]:
    """Files and folders that an item's answer depends on."""
    return [item_file(item.name), *(ROOT / path for path in item.reads)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run items; return 1 if one broke, 0 otherwise."""
    options = _options(arguments)
    # A person's own profiles are neither used nor added to.
    for folder in ("CACHE", "CONFIG", "DATA", "STATE"):
        os.environ[f"XDG_{folder}_HOME"] = str(STATE / "user" / folder.lower())
    # Children must not find our folders under the bare names of other distributions.
    os.environ["PYTHONSAFEPATH"] = "1"
    if options.rekey is not None:
        _rekey(options.rekey, options.only or NAMES)
        return 0
    chosen = items(options.only or NAMES)
    if options.full:
        chosen = [item for item in chosen if item.full_target]
    if options.list:
        answers = ledger.read().of(options.full)
        for item in chosen:
            print(_listed(item, answers))
        return 0
    return _run(chosen, options)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="evidence.py", description="Run the long checks.")
    parser.add_argument("--list", action="store_true", help="list the items and stop")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NAMES, help="these items")
    parser.add_argument("--again", action="store_true", help="also where the answer stands")
    parser.add_argument("--minutes", type=float, help="begin no item after so many")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="a glance; figures are not kept")
    form.add_argument("--full", action="store_true", help="the long forms, recorded apart")
    parser.add_argument("--rekey", nargs="?", const="", metavar="COMMIT",
                        help="key records by the code at their commit, and stop")  # fmt: skip
    return parser.parse_args(arguments)


def _run(chosen: Sequence[Item], options: argparse.Namespace) -> int:
    form: Form = "quick" if options.quick else "full" if options.full else "short"
    broken, start_s = [], time.monotonic()
    for item in chosen:
        if options.minutes and time.monotonic() - start_s > 60 * options.minutes:
            print(f"not begun, the time is up: {item.name}", file=sys.stderr)
        elif not _answer(item, form, options.again):
            broken.append(item.name)
    if broken:
        print(f"no answer from: {', '.join(broken)}", file=sys.stderr)
    return int(bool(broken))


def _stands(item: Item, answers: dict[str, ledger.Record], key: str) -> bool:
    return bool(answers.get(item.name, {}).get("key") == key)


def _listed(item: Item, answers: dict[str, ledger.Record]) -> str:
    state = "stands" if _stands(item, answers, content_key(inputs(item))) else "to run"
    seconds = answers.get(item.name, {}).get("seconds")
    took = "" if seconds is None else f"{seconds:.0f} s"
    return f"{item.name:23} {state:7} {took:>7} {'timed' if item.timed else '':6} {item.shows}"


def _answer(item: Item, form: Form, again: bool) -> bool:
    """Run an item and record its answer; False if it broke."""
    key = content_key(inputs(item))
    work = Work(item.name, key, form, commit_seed())
    if again or work.quick:
        work.forget()
    elif _stands(item, ledger.read().of(work.full), key):
        work.say("stands; --again runs it once more")
        return True
    work.tidy()
    work.say(f"begins, {form} form, seed {work.seed}")
    before, start_s = load(), time.monotonic()
    if item.timed and before > BUSY:
        work.say(f"the machine is busy (load {before}); the figures will show it")
    try:
        evidence = item.run(work)
        works = True
    except Exception as error:
        traceback.print_exc()
        why = f"broke: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        evidence, works = Evidence(rows=[Row(name="run", figure=why, outcome="MISS")]), False
    is_final = works and content_key(inputs(item)) == key
    about = {
        "machine": machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": round(work.kept_s + time.monotonic() - start_s, 1),
        "commit": commit(inputs(item)),
        "seed": work.seed,
        "key": key if is_final else None,
        "load": [before, load()],
    }
    _show(evidence)
    if not work.quick:
        _keep(item, work, evidence, about)
    return works


def _keep(item: Item, work: Work, evidence: Evidence, about: dict[str, Any]) -> None:
    answers = ledger.read()
    record = ledger.entry(item, evidence, about, work.full)
    ledger.add(answers.of(work.full), item.name, record)
    ledger.draw(evidence)
    ledger.write(answers, NAMES)
    if about["key"]:
        work.forget()
    else:
        work.say("goes on next time: it broke, or its inputs changed")


def _rekey(since: str, names: Sequence[str]) -> None:
    """Key records by the code at their own commits."""
    answers = ledger.read()
    records = [
        (name, form, form_records[name])
        for form, form_records in (("short", answers.short), ("full", answers.full))
        for name in names
        if name in form_records and form_records[name]["commit"].startswith(since)
    ]
    for sha in sorted({record["commit"] for *_, record in records}):
        group = [entry for entry in records if entry[2]["commit"] == sha]
        try:
            with rekey.checked_out(sha) as tree:
                for name, form, record in group:
                    print(
                        f"{name:23} {form:5} {sha:12} {_compared(tree, name, record)}", flush=True
                    )
        except LookupError as error:
            print(f"{', '.join(name for name, *_ in group)}: {error}", flush=True)
    ledger.write(answers, NAMES)


def _compared(tree: Path, name: str, record: ledger.Record) -> str:
    try:
        old = rekey.digests_in(tree, name)
    except LookupError as error:
        return f"not keyed: {error}"
    record["key"] = key_of(old.elements())
    (item,) = items([name])
    return rekey.in_words(old, digests(inputs(item)))


def _show(evidence: Evidence) -> None:
    for row in evidence.rows:
        target = f" (target {row.target})" if row.target else ""
        print(f"{row.outcome:10} {row.name}: {row.figure}{target}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
