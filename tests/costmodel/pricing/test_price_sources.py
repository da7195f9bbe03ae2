"""Seconds by source are the prices of the same kernels and collectives, none left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.costmodel.explain.price_sources import SOURCES, SourceSum
from shardwright.costmodel.kernel_latency.roofline import formula_constants
from shardwright.costmodel.lowering.layer_lowering import lower_layer
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.datasets.catalogue.device import device
from shardwright.datasets.catalogue.source_kind import source_kind
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.models.load import presets
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.strategy import LayerStrategy

IN_LINE = replace(stack("shardwright"), attention="flash").with_overlap("none")


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "nemotron"])
def test_terms_are_those_of_a_pass_in_line(name: str, recompute: str) -> None:
    pricer = Pricer(Machine(parse_cluster("2x8xH100").cluster), IN_LINE)
    strategy = LayerStrategy(tp=4, sequence_parallel="megatron", recompute=recompute)  # type: ignore[arg-type]
    shape = LayerShape(strategy, None, 1, 1024, "bf16", IN_LINE)
    for layer in presets()[name].model.kinds():
        if not isinstance(layer, BlockLayer):
            continue
        lowered = lower_layer(layer, shape)
        passes = [pricer.layer_pass(lowered.forward), pricer.layer_pass(lowered.backward)]
        found = SourceSum(pricer)
        found.add_layer(lowered, times=3)
        total_s = sum(sum(sources.values()) for sources in found.seconds().values())
        assert total_s == pytest.approx(3 * sum(cost.priced_s for cost in passes))
        assert ("recompute" in found.seconds()) == (recompute == "full")
        for sources in found.seconds().values():
            assert set(sources) == set(SOURCES)
        products, copies = found.seconds()["matmul"], found.seconds()["elementwise"]
        assert products["measured"] > products["learned"] == 0
        assert copies["analytic"] > copies["measured"] == 0


def test_constants_of_the_formulas_are_known_by_device() -> None:
    names = {figure.name for figure in formula_constants(device("H100"), flash=3, scans=True)}
    assert names == {
        "overlap_loss", "wave_prologue_s", "small_tile_exponent", "flash_ceiling",
        "flash_half_tokens", "flash_backward", "scan_ceiling", "device_range",
    }  # fmt: skip
    second = {figure.name for figure in formula_constants(device("H100"), flash=2, scans=True)}
    assert second - names == {"flash_2_on_hopper"}
    core = {figure.name for figure in formula_constants(device("cpu"), flash=None, scans=False)}
    assert core == {"overlap_loss"}
    measured = {"scan_ceiling", "flash_ceiling", "flash_half_tokens"}
    for figure in formula_constants(device("L40S"), flash=3, scans=True):
        known = source_kind(figure.source(device("L40S")))
        assert known == ("measured" if figure.name in measured else "assumed")
    for figure in formula_constants(device("T4"), flash=3, scans=False):
        assert source_kind(figure.source(device("T4"))) == "assumed"
