"""A layer's backward in chunks is priced as the events of all its work, the last weights' too."""

from __future__ import annotations

from collections import defaultdict

import pytest
from oracles.expert_streams import simulated_s

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing.costs import EXPOSED_EP
from shardwright.costmodel.pricing.expert_streams import ChunkSeconds
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.spec.report.work_items import Kernel
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.expert_pipelining import NAME, from_word


@pytest.mark.parametrize("word", ["2/1", "1/2", "2/4", "1/8"])
def test_every_gradient_of_weights_is_on_the_stream_of_products(word: str) -> None:
    problem = resolve(
        Inputs(model="mixtral-8x7b", cluster="16x1xH100-80GB", global_batch=16, seq_len=1024)
    )
    pricer = Pricer(problem.machine, problem.stack)
    lowering = Lowering(
        problem.model, problem.workload, problem.stack, problem.techniques.prices, {}
    )
    strategy = with_value(LayerStrategy(ep=8), NAME, from_word(word))
    backward = lowering.layer(1, strategy, None, 16, 16).backward
    seconds: dict[str, float] = defaultdict(float)
    for entry in backward.entries:
        if entry.overlap is not None and entry.overlap.beside == "experts":
            work = entry.work
            price = pricer.kernel(work) if isinstance(work, Kernel) else pricer.collective(work)
            seconds[entry.overlap.stage] += price.time_s
            chunks = entry.overlap.chunks
    each = ChunkSeconds(**{stage: total / chunks for stage, total in seconds.items()})
    products_s = seconds["experts"] + seconds["weights"]
    exchanges_s = seconds["dispatch"] + seconds["combine"]
    exposed_s = simulated_s(chunks, each) - products_s
    hidden_s = exchanges_s - exposed_s
    exposed_s += (pricer.stack.overlap_slowdown - 1) * min(hidden_s, products_s)
    cost = pricer.layer_pass(backward)
    serial_s = cost.serial_s[-1]  # exchanges of row counts
    assert cost.terms_s[EXPOSED_EP] - serial_s == pytest.approx(exposed_s, rel=1e-9)
