"""Checkpoints on a storage held to a rate: predicted beside measured, balance, bytes read once.

A folder through fsspec whose reads and writes take turns at a rate, without a rename
(``tests/support/ranks/held_storage.py``), shared by four ranks. Its rates are measured as ``plan
profile --checkpoint`` does; then six plans save twice and resume.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from generators.plan_cases import Case, Sizes, sharded
from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from ranks.held_storage import held_url, requested
from ranks.rank_pools import SUPPORT, RankPool

from shardwright.costmodel.checkpoint import price_checkpoint
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.datasets.catalogue.stack import stack
from shardwright.executor.checkpoint.integrity import damages
from shardwright.executor.checkpoint.manifest import DamagedManifestError, Manifest, read_manifest
from shardwright.executor.checkpoint.storage.far_path import FarPath
from shardwright.executor.checkpoint.storage.folders import step_folders, step_of
from shardwright.executor.checkpoint.tensor_slices import SliceSavePlanner, write_item
from shardwright.profiler.store.profile_rows import Measurements, with_measurements
from shardwright.profiler.sweep import _empty
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.report.checkpoint_price import CheckpointPrice
from shardwright.spec.strategy import LayerStrategy

RANKS, RATE, STEPS = 4, 10e6, 2
PROBE_BYTES = (2**20, 2**22)
SILENT_AFTER_S = 120.0
ERROR, BALANCE, READ, SHARE = 0.20, 1.10, 1.02, 0.4
KILLS, QUICK_KILLS, KILL_STEPS = 10, 2, 400
PLAIN = Case(
    name="replicas",
    sizes=Sizes(blocks=2, hidden=256, heads=8, kv_heads=8, ffn=768, vocab=2048),
    global_batch=8,
    micro_batch=8,
    seq_len=16,
)
TENSOR = LayerStrategy(tp=2, sequence_parallel="megatron")
CASES = (
    PLAIN,
    replace(PLAIN, name="zero1", strategies=sharded("zero1", 4)),
    replace(PLAIN, name="zero3", strategies=sharded("zero3", 4)),
    replace(PLAIN, name="tp 2, dp 2", strategies=TENSOR),
    replace(PLAIN, name="pp 2, dp 2", stages=2, boundaries=(2,)),
    replace(PLAIN, name="tp 2, zero3 of 2", strategies=sharded("zero3", 2, tp=2)),
)
PUBLISHED_PARAMETERS, PUBLISHED_SAVE_S, PUBLISHED_LOAD_S = 405e9, 51.0, 129.0
"""ByteCheckpoint (NSDI 2025): 405B on 8,960 GPUs; the storage's rate is not given."""
PUBLISHED_RATIOS = (54.20, 9.96, 8.80)
"""Stalls on average, saves and loads at most, over DCP and MCP."""
WORKER = """
import itertools, sys, torch, torch.distributed as dist
from shardwright.executor.checkpoint.storage.paths import checkpoint_path
from shardwright.executor.checkpoint.saver import Saver
from ranks.checkpoint_files import RUN
from shardwright.executor.checkpoint.tensor_slices import TensorSlice
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
saver = Saver(checkpoint_path(sys.argv[1]), 2, RUN, 0, torch.device("cpu"), True)
print("ready", flush=True)
for step in range(1, int(sys.argv[2])):
    state = {f"model.{n}": TensorSlice.unsplit(torch.full((64, 999), float(step)))
             for n in range(9)}
    state |= {f"random.cpu.{n}": TensorSlice.unsplit(torch.zeros(1)) for n in range(RUN.ranks)}
    saver.save(step, state)
"""
"""One rank that saves as fast as it can, its state the number of the step."""


def run(work: Work) -> Evidence:
    """Measure the storage, run the plans, kill a saving rank."""
    cases = CASES[:2] if work.quick else CASES
    with tempfile.TemporaryDirectory() as name, RankPool(RANKS, SILENT_AFTER_S) as pool:
        root = Path(name)
        profile = _profile(pool, root / "probe")
        ran = [_run(pool, case, root / f"case{n}", profile) for n, case in enumerate(cases)]
        shared = _shared(pool, root / "case0")
        torch_balance = _torch_balance(ran[0]["manifest"])
        kills = [
            _kill(root / f"kill{n}", work.first_seed(KILLS) + n)
            for n in range(work.sized(KILLS, QUICK_KILLS))
        ]
    rows = [*_price_rows(ran), *_byte_rows(ran, torch_balance), *_load_rows(shared)]
    rows += [_kill_row(kills), *_published_rows()]
    return Evidence(rows=rows, tables=[_table(ran)])


def _profile(pool: RankPool, folder: Path) -> MachineProfile:
    url = held_url(folder, RATE)
    asked = {"folder": url, "rank_bytes": list(PROBE_BYTES)}
    rows = pool.run("ranks.held_storage:measure", asked)[0]
    return with_measurements(_empty(RANKS, "cpu"), Measurements(copies=rows))


def _run(pool: RankPool, case: Case, folder: Path, profile: MachineProfile) -> dict[str, Any]:
    """Two saves and a resume of one plan, beside its price."""
    plan, url = case.plan(), held_url(folder, RATE)
    asked = {
        "plan": plan.to_document(),
        "steps": STEPS,
        "random_tokens": True,
        "follow_bytes": False,
        "checkpoint": {"folder": url, "every": 1, "keep": 1},
    }
    saved = pool.run("ranks.held_storage:train", asked)[0]["checkpoint"]["measured"]
    before = _data_bytes(folder)
    resume = {"resume": url}
    again = {**asked, "steps": STEPS + 1, "checkpoint": resume}
    loaded = pool.run("ranks.held_storage:train", again)[0]["checkpoint"]["measured"]
    pricer = Pricer(Machine(plan.cluster, profile), stack("shardwright", on_cores=True))
    (newest,) = step_folders(FarPath(url))
    manifest = read_manifest(newest)
    return {
        "name": case.name,
        "price": price_checkpoint(plan, pricer),
        "found": {**saved, **loaded},
        "read": (_data_bytes(folder) - before) / _unique(manifest),
        "manifest": manifest,
    }


def _data_bytes(folder: Path) -> int:
    rows = requested(folder, "read").items()
    return sum(size for name, size in rows if name.endswith(".safetensors"))


def _unique(manifest: Manifest) -> int:
    return sum(part.bytes for tensor in manifest.tensors.values() for part in tensor.parts)


def _shared(pool: RankPool, folder: Path) -> dict[str, float]:
    """Seconds in which four replicas take everything, together and each alone."""
    (newest,) = step_folders(FarPath(held_url(folder, RATE)))
    found = {}
    for how in ("alone", "shared"):
        rows = pool.run("ranks.held_storage:load", {"folder": str(newest), "alone": how == "alone"})
        found[how] = max(row["seconds"] for row in rows)
        found[f"{how} sum"] = rows[-1]["sum"]
    return found


def _torch_balance(manifest: Manifest) -> float:
    """Largest over mean bytes written as torch shares out the same replicas."""
    from torch.distributed.checkpoint.planner import SavePlan

    rows = [
        (name, tensor.dtype, [*tensor.shape], [0] * len(tensor.shape), [*tensor.shape])
        for name, tensor in manifest.tensors.items()
    ]
    plans = [SavePlan([write_item(row) for row in rows]) for _ in range(RANKS)]
    made, _ = SliceSavePlanner().create_global_plan(plans)
    sizes = []
    for plan in made:
        data = [item.tensor_data for item in plan.items]
        sizes.append(sum(d.chunk.sizes.numel() * d.properties.dtype.itemsize for d in data if d))
    return max(sizes) * RANKS / sum(sizes)


def _kill(folder: Path, seed: int) -> dict[str, Any]:
    """A rank that saves by URL, killed at a random moment; what is there afterwards."""
    url = f"file://{folder}"
    paths = f"{SUPPORT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-c", WORKER, url, str(KILL_STEPS)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while not step_folders(FarPath(url)):
            time.sleep(0.01)
        time.sleep(Random(seed).uniform(0.0, 0.6))
        process.send_signal(signal.SIGKILL)
    every = [path for path in FarPath(url).iterdir() if step_of(path) is not None]
    good = next(filter(None, map(_readable, step_folders(FarPath(url)))), None)
    if good is None:
        return {"whole": False, "cut": len(every)}
    folder, manifest = good
    cut = sum((step_of(path) or 0) > manifest.step for path in every)
    return {"whole": not damages(folder, manifest), "cut": cut}


def _readable(folder: FarPath) -> tuple[FarPath, Manifest] | None:
    """A checkpoint with its manifest; None where that was cut, which a resume passes over."""
    try:
        return folder, read_manifest(folder)
    except DamagedManifestError:
        return None


def _price_rows(ran: list[dict[str, Any]]) -> list[Row]:
    names = {"stall_s": "stall", "end_to_end_s": "save to commit", "load_s": "load"}
    rows = []
    for key, name in names.items():
        errors = [abs(_error(row, key)) for row in ran]
        rows.append(
            judged(
                f"predicted {name}",
                f"off by at most {max(errors):.1%} in {len(ran)} plans",
                f"within {ERROR:.0%}",
                max(errors) <= ERROR,
                errors=errors,
            )
        )
    return rows


def _error(row: dict[str, Any], key: str) -> float:
    price: CheckpointPrice = row["price"]
    predicted: float = getattr(price, key)
    return predicted / float(row["found"][key]) - 1


def _byte_rows(ran: list[dict[str, Any]], torch_balance: float) -> list[Row]:
    balance = ran[0]["found"]["largest_over_mean"]
    read = max(row["read"] for row in ran)
    return [
        judged(
            "bytes written, largest over mean, 4 replicas",
            f"{balance:.3f} (torch's sharing out: {torch_balance:.3f})",
            f"at most {BALANCE:.2f}",
            balance <= BALANCE,
            ours=balance,
            torch=torch_balance,
        ),
        judged(
            "bytes read over unique bytes",
            f"at most {read:.4f}",
            f"at most {READ:.2f}",
            read <= READ,
            largest=read,
        ),
    ]


def _load_rows(shared: dict[str, float]) -> list[Row]:
    ratio = shared["shared"] / shared["alone"]
    same = shared["shared sum"] == shared["alone sum"]
    return [
        judged(
            "load beside every rank reading for itself",
            f"{ratio:.2f} x ({shared['shared']:.2f} s against {shared['alone']:.2f} s)",
            f"at most {SHARE} x, the same numbers",
            ratio <= SHARE and same,
            ratio=ratio,
        )
    ]


def _kill_row(kills: list[dict[str, Any]]) -> Row:
    whole, cut = sum(row["whole"] for row in kills), sum(row["cut"] for row in kills)
    return judged(
        "kills under a far storage",
        f"{whole} of {len(kills)} leave the newest good one whole; {cut} left a half one beside it",
        "all",
        whole == len(kills),
    )


def _published_rows() -> list[Row]:
    rate = PUBLISHED_PARAMETERS * 12 / PUBLISHED_SAVE_S
    load_s = PUBLISHED_PARAMETERS * 12 / rate
    apart = load_s / PUBLISHED_LOAD_S - 1
    stall, save, load = PUBLISHED_RATIOS
    return [
        judged(
            "405B on 8,960 GPUs: load at the rate of its save",
            f"{load_s:.0f} s against {PUBLISHED_LOAD_S:.0f} s ({apart:+.0%}): 12 bytes a parameter "
            f"in {PUBLISHED_SAVE_S:.0f} s are {rate / 1e9:.0f} GB/s",
            f"within {ERROR:.0%}",
            abs(apart) <= ERROR,
            rate_bytes_per_s=rate,
        ),
        reported(
            "published, over DCP and MCP",
            f"stalls {stall:.2f} x less on average, saves up to {save} x, loads up to {load} x "
            "faster; ours beside torch: checkpoint_beside_torch",
        ),
    ]


def _table(ran: list[dict[str, Any]]) -> Table:
    lines = []
    for row in ran:
        pairs = [
            f"{getattr(row['price'], key):.3g} / {row['found'][key]:.3g}"
            for key in ("stall_s", "end_to_end_s", "load_s")
        ]
        found = row["found"]
        lines.append(
            (row["name"], *pairs, f"{found['largest_over_mean']:.3f}", f"{row['read']:.4f}")
        )
    columns = (
        *("plan", "stall s, predicted / measured", "save to commit s", "load s"),
        *("written, largest over mean", "read over unique"),
    )
    return Table(title=f"Storage held to {RATE / 1e6:.0f} MB/s", columns=columns, rows=lines)


ITEM = Item(
    name="checkpoint_price",
    shows="Saving and loading take as long as priced, write evenly, and read every byte once.",
    target=(
        "stall, end to end and load within 20 % in 6 plans; largest over mean written at most "
        "1.10; bytes read at most 1.02 of the unique ones; load at most 0.4 x of every rank "
        "reading for itself; 10 kills leave the newest good one whole."
    ),
    run=run,
    reads=(*EVERYTHING, "tests/support/ranks/held_storage.py",
           "tests/support/ranks/checkpoint_files.py", "tests/support/generators/plan_cases.py",
           "tests/support/ranks/rank_pools.py"),
    timed=True,
)  # fmt: skip
