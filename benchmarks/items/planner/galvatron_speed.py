"""Our search under Galvatron's costs beside Galvatron's own, on the same inputs.

Every search is a process of its own and times itself from the moment when everything is loaded
and read. Galvatron is the newest release that its package index has, installed into a scratch
folder, or the checkout of its main branch that GALVATRON_CHECKOUT names, in which its package and
compiled core can be imported.

Our costs are those of the main branch, so samples a second are held against it alone. Release
2.4.0 counts embedding and head otherwise: it splits their computation by the least degree of the
plan and not by their own, and does not halve their gradients in 16 bits.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.paths import BENCHMARKS, ROOT
from harness.processes import ran, succeeded
from harness.shapes import PLANNING, Evidence, Item, Row, Table, judged, unmeasured
from harness.work import Work

BUDGETS_GIB, BATCH, REPEATS = (16, 24, 36), 16, 3
SHORT = 2
"""Budgets of the short form; Galvatron takes minutes at the last one."""
LEAST_RATIO = 100
ROUNDING = 1e-6
PROFILES = ROOT / "datasets" / "galvatron" / "profiles"
PEERS = BENCHMARKS / "peers"
PACKAGE, NEEDS = "hetu-galvatron", ("scipy", "tqdm")
CHECKOUT, SAME_COSTS = "GALVATRON_CHECKOUT", "main"


def run(work: Work) -> Evidence:
    """Both searches at every budget."""
    budgets = work.sized(SHORT, 1, len(BUDGETS_GIB))
    repeats = work.sized(REPEATS, 1)
    with tempfile.TemporaryDirectory() as folder:
        peer, why = _peer(Path(folder))
        if peer is None:
            return Evidence(rows=[unmeasured(_name(gib), why) for gib in BUDGETS_GIB[:budgets]])
        keys = [f"{gib} {n}" for gib in BUDGETS_GIB[:budgets] for n in range(repeats)]
        pairs = work.pieces(keys, lambda key: _pair(peer, int(key.split()[0])))
    rows, lines = [], []
    for number, gib in enumerate(BUDGETS_GIB[:budgets]):
        repeated = pairs[number * repeats : (number + 1) * repeats]
        rows.append(_row(gib, repeated))
        lines += [_line(gib, pair) for pair in repeated]
    columns = ("GiB", "ours s", "samples/s", "theirs s", "samples/s")
    return Evidence(rows=rows, tables=[Table(title="Every pair", columns=columns, rows=lines)])


def _name(gib: int) -> str:
    return f"search of llama-2-7b on 1x8xA100-80GB within {gib} GiB, batch {BATCH}"


def _peer(folder: Path) -> tuple[Sequence[str] | None, str]:
    """Galvatron's command without its last two words, or the reason for none."""
    checkout = os.environ.get(CHECKOUT)
    if checkout:
        return [sys.executable, str(PEERS / "galvatron_main.py"), checkout, str(PROFILES)], ""
    packages = str(folder / "packages")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    done = ran([*command, "--target", packages, PACKAGE, *NEEDS])
    if done.code:
        last_line = done.err.strip().splitlines()[-1:] or ["nothing said"]
        return (
            None,
            f"{PACKAGE} could not be installed ({last_line[0]}); {CHECKOUT} names a checkout",
        )
    return [sys.executable, str(PEERS / "galvatron_release.py"), packages, str(PROFILES)], ""


def _pair(peer: Sequence[str], gib: int) -> dict[str, Any]:
    arguments = (str(gib), str(BATCH))
    ours = succeeded([sys.executable, str(PEERS / "galvatron_ours.py"), str(PROFILES), *arguments])
    theirs = succeeded([*peer, *arguments])
    return {"ours": json.loads(ours.out), "theirs": json.loads(theirs.out)}


def _row(gib: int, pairs: Sequence[Mapping[str, Any]]) -> Row:
    ours_s, theirs_s = (
        statistics.median(pair[side]["seconds"] for pair in pairs) for side in ("ours", "theirs")
    )
    ours, theirs = (pairs[0][side]["samples_per_s"] for side in ("ours", "theirs"))
    version, ratio = pairs[0]["theirs"]["version"], theirs_s / ours_s
    alike = version == SAME_COSTS
    costs = "" if alike else " by its own costs, which are others"
    return judged(
        _name(gib),
        f"{ratio:.0f}x: {ours_s:.3f} s against {theirs_s:.1f} s of {PACKAGE} {version}, median of "
        f"{len(pairs)}; {ours:.6f} against {theirs:.6f} samples/s{costs}",
        f"at least {LEAST_RATIO}x" + (", and no fewer samples/s" if alike else ""),
        ratio >= LEAST_RATIO and (not alike or ours >= theirs - ROUNDING),
        ours_s=ours_s,
        theirs_s=theirs_s,
        ours_samples_per_s=ours,
        theirs_samples_per_s=theirs,
        version=version,
    )


def _line(gib: int, pair: Mapping[str, Any]) -> tuple[str, ...]:
    ours, theirs = pair["ours"], pair["theirs"]
    figures = (ours["seconds"], ours["samples_per_s"], theirs["seconds"], theirs["samples_per_s"])
    return (str(gib), *(f"{figure:.6g}" for figure in figures))


ITEM = Item(
    name="galvatron_speed",
    shows="On Galvatron's inputs our exact search is far faster than its own and never worse.",
    target="100x at 16 and 24 GiB; no fewer samples/s under the same costs.",
    full_target="100x at 16, 24 and 36 GiB; no fewer samples/s under the same costs.",
    run=run,
    reads=(*PLANNING, "api", "benchmarks/peers", "benchmarks/harness/processes.py"),
    timed=True,
)
