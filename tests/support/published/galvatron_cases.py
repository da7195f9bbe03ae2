"""Random questions under Galvatron's costs, and every plan of a small one, priced in bulk."""

from __future__ import annotations

import math
import random
import re
from itertools import product

import numpy as np

from shardwright.costmodel.galvatron.embedding_head import (
    embedding_head_memory,
    embedding_head_seconds,
)
from shardwright.costmodel.galvatron.job import GalvatronJob
from shardwright.costmodel.galvatron.layer_memory import layer_memory
from shardwright.costmodel.galvatron.layer_time import layer_time
from shardwright.costmodel.galvatron.reshard import reshard_seconds
from shardwright.costmodel.galvatron.strategy import GalvatronStrategy
from shardwright.datasets.galvatron.profile import (
    EmbeddingHeadProfile,
    GalvatronProfile,
    LayerProfile,
    LinkProfile,
    ModelProfile,
)
from shardwright.datasets.galvatron.read import SHIPPED, read_profile

NOTATION = r"(\d+)-(\d+)\*?-(\d+)(f?)(-c)?(-sp)?"


def strategy(text: str) -> GalvatronStrategy:
    """A strategy from Galvatron's notation."""
    found = re.fullmatch(NOTATION, text)
    assert found, text
    stages, degree, dp = (int(found[n]) for n in (1, 2, 3))
    tp, sp = (1, degree) if found[6] else (degree, 1)
    return GalvatronStrategy(stages, tp, sp, dp, bool(found[4]), bool(found[5]))


def llama_job(batch: int) -> GalvatronJob:
    """The question of Galvatron's published runs: llama2-7b on 8 devices, 2048 tokens."""
    return GalvatronJob(
        profile=read_profile(SHIPPED, "llama-2-7b", "bf16", (2048,), 1, 8),
        layers=(32,),
        hidden=(4096,),
        seq_lens=(2048,),
        devices=8,
        global_batch=batch,
    )


def random_job(seed: int) -> tuple[GalvatronJob, int]:
    """A small question, some of several layer types, and MB that often bind."""
    source = random.Random(seed)
    devices = source.choice((2, 4))
    layers = source.choice(((2,), (3,), (4,), (1, 2), (2, 1), (2, 2)) if devices == 2 else
                           ((2,), (3,), (4,), (1, 2), (2, 1), (1, 1, 1)))  # fmt: skip
    profile = GalvatronProfile(
        model=_model(source, len(layers)), machine=_machine(source, devices), files=()
    )
    job = GalvatronJob(
        profile=profile,
        layers=layers,
        hidden=(source.choice((8, 64, 1024)),) * len(layers),
        seq_lens=tuple(source.choice((512, 1024)) for _ in layers),
        devices=devices,
        global_batch=source.choice((2, 4, 8)),
        half=source.random() < 0.8,
    )
    return job, int(10 ** source.uniform(3.2, 4.1))


def _model(source: random.Random, types: int) -> ModelProfile:
    layers = tuple(
        LayerProfile(
            parameter_mb=source.uniform(50, 900),
            activation_mb={d: 600 * source.uniform(0.5, 1.5) / d for d in (1, 2, 4)},
            recomputed_mb=source.uniform(10, 60),
            forward_ms=((1, source.uniform(1, 20)),),
        )
        for _ in range(types)
    )
    together, first, last = (
        EmbeddingHeadProfile(
            states_mb={d: source.uniform(100, 1500) / d for d in (1, 2, 4)},
            activation_mb={d: source.uniform(50, 500) / d for d in (1, 2, 4)},
        )
        for _ in range(3)
    )
    return ModelProfile(
        layers=layers,
        embedding_head_forward_ms=((1, source.uniform(1, 20)),),
        together=together,
        first=first,
        last=last,
    )


def _machine(source: random.Random, devices: int) -> LinkProfile:
    speed, between = 10 ** source.uniform(0, 2.3), 10 ** source.uniform(0, 3)
    bandwidths = {
        (ranks, near): speed * source.uniform(0.5, 1.5) for ranks in (2, 4) for near in (0, 1)
    }
    bandwidths[devices, 0] = bandwidths[devices, 1]
    tables = [
        {n: tuple((2**k, source.uniform(0.8, 1.2) * (start + 2**k / speed)) for k in range(8))
         for n in (2, 4)}
        for start in (10 ** source.uniform(-1, 2), 10 ** source.uniform(-1, 2))
    ]  # fmt: skip
    return LinkProfile(
        allreduce=bandwidths,
        p2p={2: between, 4: between * 0.8},
        allreduce_ms=tables[0],
        all2all_ms=tables[1],
        slowdown=source.uniform(1, 1.4),
    )


def every_plan(job: GalvatronJob, usable_mb: int) -> tuple[float, int]:
    """The least seconds of all plans that fit, and how many plans there are."""
    best, count = math.inf, 0
    for m in (n for n in range(1, job.global_batch + 1) if job.global_batch % n == 0):
        for p in (1, 2, 4):
            if p <= min(m, job.devices, sum(job.layers)):
                found, seen = _plans_of(job, m, p, usable_mb)
                best, count = min(best, found), count + seen
    return best, count


def _strategies(job: GalvatronJob, m: int, p: int) -> list[GalvatronStrategy]:
    ranks = job.devices // p
    found = []
    for tp, sp, zero3, again in product((1, 2, 4), (1, 2, 4), (False, True), (False, True)):
        dp = ranks // (tp * sp)
        fits = dp and (job.global_batch // m) % dp == 0 and min(tp, sp) == 1
        if fits and not (zero3 and dp == 1):
            found.append(GalvatronStrategy(p, tp, sp, dp, zero3, again))
    return found


def _plans_of(job: GalvatronJob, m: int, p: int, usable_mb: int) -> tuple[float, int]:
    chosen = _strategies(job, m, p)
    types = [kind for kind, count in enumerate(job.layers) for _ in range(count)]
    rows = np.array(list(product(range(len(chosen)), repeat=len(types))), dtype=np.int64)
    degrees = np.array([s.degree for s in chosen])
    split = np.array([s.tp > 1 for s in chosen])
    each = len(types) // p
    stage_of = [min(n // each, p - 1) for n in range(len(types))]
    plain = np.zeros((len(rows), p))
    reduce, used = np.zeros_like(plain), np.zeros_like(plain)
    for n, (kind, stage) in enumerate(zip(types, stage_of, strict=True)):
        times = [layer_time(job, kind, s, m) for s in chosen]
        column = rows[:, n]
        plain[:, stage] += np.array([t.plain_s for t in times])[column]
        reduce[:, stage] += np.array([t.reduce_s for t in times])[column]
        sizes = [layer_memory(job, kind, s, m, stage).whole_mb for s in chosen]
        used[:, stage] += np.array(sizes)[column]
        if n and stage == stage_of[n - 1]:
            changes = [[reshard_seconds(job, kind, a.degree, b.degree, p, m) for b in chosen]
                       for a in chosen]  # fmt: skip
            plain[:, stage] += np.array(changes)[rows[:, n - 1], column]
    best, ends = math.inf, [s for s in chosen if not s.recompute]
    for end in ends:
        largest = np.maximum(degrees[rows].max(axis=1), end.degree)
        buffers = {int(d): job.buffer_mb(m, p, int(d)) for d in np.unique(largest)}
        gathers = split[rows].any(axis=1) | (end.tp > 1)
        buffer = np.where(gathers, np.vectorize(buffers.get)(largest), 0)
        own = np.array([part.whole_mb for part in embedding_head_memory(job, end, m)])
        fits = ((used + own + buffer[:, None]) <= usable_mb).all(axis=1)
        if fits.any():
            added = np.array(embedding_head_seconds(job, end, m))
            best = min(best, float(_steps(plain[fits] + added, reduce[fits] - added, m).min()))
    return best, len(rows) * len(ends)


def _steps(plain: np.ndarray, reduce: np.ndarray, m: int) -> np.ndarray:
    """The pipeline formula as the notes on Galvatron write it."""
    p = plain.shape[1]
    whole, first, last = plain.sum(axis=1), plain[:, 0], plain[:, -1]
    fill = np.maximum(min(p - 1, m - 1) * first, plain[:, 1:].sum(axis=1))
    work = np.maximum(whole + (m - 1) * last, fill + first * max(0, m + 1 - p))
    with_sync = plain + reduce
    shown = (with_sync - np.cumsum(plain, axis=1)).max(axis=1)
    return work + np.maximum(0.0, shown)
