"""Products in chunks by size and device, beside Flux's figures and MegaScale's steps.

Of MegaScale's runs the paper gives tp 8, pp 8 and the batch. Assumed before the first run: six
chunks a stage, micro-batches of one sample, selective recomputation, zero1, blocks in series.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.processes import plan_command, succeeded
from harness.shapes import PRICING, Evidence, Item, Row, Table, judged, reported, unmeasured
from harness.work import Work

import shardwright as sw
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.lowering.layer_lowering import lower_layer
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing.overlap import ChunkPipeline
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.tp_overlap import CHUNKS, NAME, TensorParallelOverlap

CLUSTERS = ("1x8xH100-80GB", "1x8xA100-80GB", "1x8xL40S")
TOKENS = tuple(2**n for n in range(8, 15))
LONGEST = 2048
"""Positions of the model; longer micro-batches have several samples."""
SPLIT = LayerStrategy(tp=8, sequence_parallel="megatron")
FLUX = {
    "gather, product": (11.200e-3, 5.746e-3, 16.946e-3, 5.903e-3),
    "product, scatter": (12.273e-3, 5.392e-3, 17.664e-3, 5.730e-3),
}
"""bytedance/flux, docs/performance.md, 8 L20 over PCIe, m 4096, k 12288, n 49152, tp 8, fp16:
seconds of the collective, of the product, of both in turn, of Flux's kernel."""
MEGASCALE = {
    (256, 768): 32.0,
    (512, 768): 16.5,
    (768, 768): 11.5,
    (1024, 768): 8.9,
    (3072, 6144): 23.66,
    (6144, 6144): 12.21,
    (8192, 6144): 9.56,
    (12288, 6144): 6.34,
}
"""Jiang et al., NSDI 2024, table 2: seconds of a step of the 175B model by GPUs and batch."""
WITHIN, SPREAD = 0.12, 0.10
OVERLAPS = ("tp_overlap", "p2p_overlap", "grad_overlap", "param_overlap")
CHANGES = {
    "as Megatron-LM": (False, (), None),
    "parallel block": (True, (), 4.6),
    "tp": (True, OVERLAPS[:1], 2.2),
    "pp": (True, OVERLAPS[:2], 2.5),
    "dp": (True, OVERLAPS, 1.5),
}
"""Jiang et al., table 3, 256 GPUs: changes one after another, and points of MFU that each gains.
Gradients are reduced after all passes, as Megatron-LM does, until dp's change reduces by chunk.
Left out: windows (+1.0), operators (+1.7) and others, which the paper gives no figures to price."""
POINTS = 1.5
FLUX_CLUSTERS = ("16x8xA100-80GB", "16x8xH100-80GB")
FLUX_TRAINING = 1.24
"""Chang et al., 2024 (arXiv 2406.06858), abstract: the most that training gains over products and
collectives in turn. Assumed: GPT-3 175B, tp 8, pp 8, dp 2, batch 256, micro-batches of 1 sample."""


def run(work: Work) -> Evidence:
    """Price blocks at every size, the published pairs, and the published steps."""
    keys = [f"{cluster} {tokens}" for cluster in CLUSTERS for tokens in TOKENS]
    blocks = work.pieces(keys, lambda key: _block(*key.split()))
    rows = [_crossing(cluster, blocks) for cluster in CLUSTERS]
    rows += [_flux(name, *seconds) for name, seconds in FLUX.items()]
    steps = work.pieces([f"{gpus} {batch}" for gpus, batch in MEGASCALE], _step)
    rows.append(_megascale(steps))
    changes = work.pieces([*CHANGES], _change)
    rows.append(_table_3(changes))
    rows += map(_training, work.pieces([*FLUX_CLUSTERS], _training_steps))
    rows.append(unmeasured("fused kernels", "needs several GPUs with symmetric memory"))
    columns = ("cluster", "tokens", "none", *(f"chunked:{c}" for c in CHUNKS))
    sizes = Table(title="One block, both ways, ms", columns=columns, rows=[
        (b["cluster"], str(b["tokens"]), *(f"{1e3 * s:.3f}" for s in b["seconds"].values()))
        for b in blocks
    ])  # fmt: skip
    columns = ("GPUs", "batch", "predicted s", "published s", "error")
    published = Table(title="MegaScale, table 2", columns=columns, rows=[
        (str(s["gpus"]), str(s["batch"]), f"{s['predicted_s']:.2f}", f"{s['published_s']:g}",
         f"{s['error']:+.1%}")
        for s in steps
    ])  # fmt: skip
    columns = ("change", "MFU", "gain, points", "published")
    gains = Table(title="MegaScale, table 3", columns=columns, rows=[
        (name, f"{change['mfu']:.1%}", f"{gain:+.1f}", f"{CHANGES[name][2]:+.1f}")
        for (name, gain), change in zip(_gains(changes).items(), changes[1:], strict=True)
    ])  # fmt: skip
    return Evidence(rows=rows, tables=[sizes, published, gains])


def _block(cluster: str, tokens: str) -> dict[str, Any]:
    """Seconds of one block of GPT-3 175B by chunks; 0: none."""
    seq_len = min(int(tokens), LONGEST)
    samples = int(tokens) // seq_len
    inputs = Inputs(
        model="gpt3-175b", cluster=cluster, global_batch=samples, seq_len=seq_len, dtype="bf16"
    )
    problem = resolve(inputs)
    pricer = Pricer(problem.machine, problem.stack)
    lowering = Lowering(
        problem.model, problem.workload, problem.stack, problem.techniques.prices, {}
    )
    seconds = {}
    for chunks in (0, *CHUNKS):
        value = TensorParallelOverlap(chunks=chunks) if chunks else None
        strategy = with_value(replace(SPLIT), NAME, value)
        lowered = lower_layer(lowering.layers[1], lowering.shape(1, strategy, None, samples, False))
        ways = (lowered.forward, lowered.backward)
        seconds[str(chunks)] = sum(pricer.layer_pass(way).time_s for way in ways)
    return {"cluster": cluster, "tokens": int(tokens), "seconds": seconds}


def _crossing(cluster: str, blocks: list[dict[str, Any]]) -> Row:
    """The least size from which some number of chunks pays at every larger one."""
    own = [b for b in blocks if b["cluster"] == cluster]
    pays = {b["tokens"]: _best(b["seconds"]) != "0" for b in own}
    from_size = next(
        (m for m in sorted(pays) if all(paid for n, paid in pays.items() if n >= m)), None
    )
    below = [m for m, paid in pays.items() if paid and (from_size is None or m < from_size)]
    gain = own[-1]["seconds"]["0"] / min(own[-1]["seconds"].values()) - 1
    figure = f"pays from {from_size} tokens on; at {own[-1]['tokens']}: {gain:+.1%}"
    target = "refused below a size, chosen from there on"
    return judged(f"chunks on {cluster}", figure, target, not below, tokens=from_size, gain=gain)


def _best(seconds: Mapping[str, float]) -> str:
    return min(seconds, key=lambda chunks: seconds[chunks])


def _flux(name: str, wire_s: float, product_s: float, turn_s: float, flux_s: float) -> Row:
    """Our price of a pair from its published parts, split evenly."""
    by_chunks = {}
    for chunks in CHUNKS:
        pipeline, exposed_s = ChunkPipeline(), 0.0
        for chunk in range(chunks):
            if name.startswith("gather"):
                exposed_s += pipeline.gather(wire_s / chunks, chunk)
            pipeline.compute(product_s / chunks)
            if name.endswith("scatter"):
                exposed_s += pipeline.scatter(wire_s / chunks, chunk == chunks - 1)
        by_chunks[chunks] = product_s + exposed_s
    ours = ", ".join(f"{c}: {1e3 * s:.1f}" for c, s in by_chunks.items())
    figure = f"in chunks {ours} ms; in turn {1e3 * turn_s:.1f}, Flux {1e3 * flux_s:.1f} ms"
    return reported(f"Flux on 8 L20, {name}", figure, four_s=by_chunks[4], flux_s=flux_s)


def _training_steps(cluster: str) -> dict[str, Any]:
    """Seconds of a step of GPT-3 175B by ``--tp-overlap``."""
    seconds, exposed_s = {}, {}
    for word in ("none", *(f"chunked:{chunks}" for chunks in CHUNKS)):
        prediction = sw.simulate(
            "gpt3-175b", cluster, global_batch=256, seq_len=2048, dtype="bf16", tp=8, pp=8,
            sp="megatron", recompute="selective", micro_batch=1, shard="zero1", tp_overlap=word,
        ).report.prediction  # fmt: skip
        seconds[word] = prediction.step_time_s
        exposed_s[word] = prediction.breakdown_s["exposed_tp"]
    return {"cluster": cluster, "seconds": seconds, "exposed_s": exposed_s}


def _training(steps: dict[str, Any]) -> Row:
    seconds = steps["seconds"]
    gains = {word: seconds["none"] / taken for word, taken in seconds.items() if word != "none"}
    said = ", ".join(f"{word} {gain:.3f} x" for word, gain in gains.items())
    hidden = seconds["none"] / (seconds["none"] - steps["exposed_s"]["none"])
    figure = f"{said}; all of tp hidden {hidden:.3f} x; Flux up to {FLUX_TRAINING} x"
    return reported(f"GPT-3 175B on {steps['cluster']}", figure, hidden=hidden, **gains)


def _step(key: str) -> dict[str, Any]:
    """A step of MegaScale's 175B model by ``plan simulate``."""
    gpus, batch = map(int, key.split())
    words = (
        f"--model gpt3-175b --cluster {gpus // 8}x8xA100-80GB --global-batch {batch} "
        "--seq-len 2048 --dtype bf16 --tp 8 --pp 8 --vpp 6 --sp megatron --recompute selective "
        "--micro-batch 1 --shard zero1 --stack megascale --attention flash --calibration none "
        "--json -"
    )
    report = json.loads(succeeded([*plan_command(), "simulate", *words.split()]).out)
    predicted_s, published_s = report["prediction"]["step_time_s"], MEGASCALE[gpus, batch]
    return {
        "gpus": gpus,
        "batch": batch,
        "predicted_s": predicted_s,
        "published_s": published_s,
        "error": predicted_s / published_s - 1,
    }


def _megascale(steps: list[dict[str, Any]]) -> Row:
    errors = [step["error"] for step in steps]
    spread = max(errors) - min(errors)
    met = max(map(abs, errors)) <= WITHIN and spread <= SPREAD
    figure = f"errors {min(errors):+.1%} to {max(errors):+.1%}, spread {100 * spread:.1f} points"
    target = f"8 rows within {WITHIN:.0%}, spread at most {100 * SPREAD:.0f} points"
    return judged("MegaScale, table 2", figure, target, met, least=min(errors), most=max(errors))


def _change(name: str) -> dict[str, Any]:
    """MFU of a model of GPT-3's sizes on 256 GPUs, batch 256, after some of the changes."""
    parallel, on, _ = CHANGES[name]
    sizes = {"layers": 96, "hidden": 12288, "heads": 96, "vocab": 50257, "name": "gpt3"}
    settings = ",".join(f"{each}={'on' if each in on else 'off'}" for each in OVERLAPS)
    base = "megascale" if on == OVERLAPS else "megatron:attention_kernels=2"
    stack = f"{base}{':' if on == OVERLAPS else ','}{settings}"
    report = sw.simulate(
        {**sizes, "parallel": parallel, "shared_norm": parallel}, "32x8xA100-80GB",
        global_batch=256, seq_len=2048, dtype="bf16", tp=8, pp=8, vpp=6, sp="megatron",
        recompute="selective", micro_batch=1, shard="zero1", stack=stack,
        attention="flash", calibration="none",
    ).report  # fmt: skip
    prediction = report.prediction
    return {"mfu": prediction.mfu, "exposed_dp": prediction.breakdown_s["exposed_dp"],
            "step_s": prediction.step_time_s}  # fmt: skip


def _gains(changes: list[dict[str, Any]]) -> dict[str, float]:
    """Points of MFU that each change adds to the ones before."""
    names = list(CHANGES)[1:]
    return {
        name: 100 * (after["mfu"] - before["mfu"])
        for name, (before, after) in zip(names, itertools.pairwise(changes), strict=True)
    }


def _table_3(changes: list[dict[str, Any]]) -> Row:
    gains = _gains(changes)
    published = {name: gain for name, (_, _, gain) in CHANGES.items() if gain is not None}
    near = all(abs(gain - published[name]) <= POINTS for name, gain in gains.items())
    met = near and sorted(gains, key=gains.__getitem__) == sorted(published, key=published.get)  # type: ignore[arg-type]
    said = ", ".join(f"{name} {gain:+.1f} ({published[name]:+.1f})" for name, gain in gains.items())
    hidden = changes[-2]["exposed_dp"] - changes[-1]["exposed_dp"]
    of = changes[-2]["step_s"]
    figure = f"{changes[0]['mfu']:.1%} MFU, {said}; dp hides {hidden:.2f} s of {of:.1f}"
    target = f"47.7 %; each within {POINTS} points, in the published order"
    return judged("MegaScale, table 3", figure, target, met, **gains)


ITEM = Item(
    name="tp_overlap",
    shows="Where cutting products beside their collectives pays, and published systems beside it.",
    target="refused where it loses; MegaScale's steps within 12 %.",
    run=run,
    reads=(*PRICING, "planner", "api"),
)
