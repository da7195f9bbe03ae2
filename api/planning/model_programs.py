"""Kernels of models' plans on this machine, and the few of them that are worth timing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.programs.kernels import program_of
from ...costmodel.programs.sampler import chosen_programs
from ...costmodel.programs.sequence import leaves_of, pooled
from ...costmodel.sharding.optimizers import merged_share, update_work
from ...datasets.models.load import presets
from ...planner.solve.problem import Problem
from ...spec.report.work_items import Kernel, on_host
from ...spec.strategy import LayerStrategy
from ..problem.model_and_cluster import ModelLike, model_of
from ..problem.resolve import Inputs, resolve
from ..problem.workload_size import USUAL_BATCH, usual_seq_len

SEQ_LEN = 512
"""Tokens of a sample: what fits the memory of any machine."""
MOST_S = 0.05
"""Longer kernels are left to interpolation: a hundred of them would take the whole budget."""
LARGEST_BYTES = 2**28


def model_kernels(model: ModelLike | None, cluster: str) -> dict[Kernel, float]:
    """Seconds that a step's micro-batch of each model spends on each kernel, as priced today.

    Args:
        model: as ``--model``; None: every preset of one tower.
        cluster: of this machine, as ``--cluster``.

    Raises:
        InputError: no usable model or cluster.
    """
    names = [name for name, entry in presets().items() if len(entry.model.towers) == 1]
    models: Sequence[ModelLike] = names if model is None else [model]
    total_s: Counter[Kernel] = Counter()
    for each in models:
        inputs = Inputs(
            model=each, cluster=cluster, global_batch=USUAL_BATCH, seq_len=_seq_len(each)
        )
        total_s.update(_seconds(resolve(inputs)))
    return {
        kernel: seconds
        for kernel, seconds in total_s.items()
        if kernel.traffic_bytes <= LARGEST_BYTES
    }


def _seq_len(model: ModelLike) -> int:
    """Tokens of a sample: fewer or more where a model takes only those, as images do."""
    spec, _ = model_of(model)
    usual = usual_seq_len(spec)
    return usual if spec.towers[0].seq_len is not None else min(SEQ_LEN, usual)


def _seconds(problem: Problem) -> Counter[Kernel]:
    lowering = Lowering(problem.model, problem.workload, problem.stack)
    pricer = Pricer(problem.machine, problem.stack)
    every = tuple((number, LayerStrategy()) for number in range(len(lowering.layers)))
    chunk = lowering.chunk(every, None, 1, 1)
    works = [
        entry.work
        for layer in chunk.layers
        for entry in (*layer.lowered.forward.entries, *layer.lowered.backward.entries)
    ]
    share = merged_share(x.unit.update for x in chunk.layers if x.unit is not None)
    workload = problem.workload
    works += update_work(
        share, 0, workload.optimizer, workload.dtype, workload.gradient_clip_norm is not None
    )
    counts = Counter(x for x in works if isinstance(x, Kernel) and not on_host(x.op))
    return Counter(
        {
            kernel: times * pricer.kernel(kernel).time_s
            for kernel, times in counts.items()
            if pricer.kernel(kernel).time_s <= MOST_S
        }
    )


def programs_to_time(seconds: dict[Kernel, float], count: int) -> list[Kernel]:
    """At most ``count`` kernels: of each cluster of programs one, heaviest first."""
    kernels = sorted(seconds, key=tuple)
    rows = pooled(leaves_of([program_of(kernel) for kernel in kernels]))
    sizes = [[math.log1p(kernel.flops), math.log1p(kernel.traffic_bytes)] for kernel in kernels]
    embeddings = np.concatenate([rows, np.array(sizes)], axis=1).astype(np.float64)
    weights = np.array([seconds[kernel] for kernel in kernels])
    return [kernels[row] for row in chosen_programs(embeddings, weights, count)]
