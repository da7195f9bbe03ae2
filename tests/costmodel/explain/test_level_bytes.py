"""Bytes over link levels: those of the whole step's work, and of the plan without techniques."""

from __future__ import annotations

import pytest
from generators.plan_cases import Sizes, random_case

import shardwright as sw
from shardwright.costmodel.explain.level_bytes import level_bytes
from shardwright.costmodel.lowering.step_work import step_work
from shardwright.costmodel.techniques import TECHNIQUES
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.report.sent_bytes import sent_bytes
from shardwright.spec.report.work_items import Collective

SIZES = Sizes(blocks=4, hidden=64, heads=8, kv_heads=8, ffn=128, vocab=512)


@pytest.mark.parametrize("seed", range(12))
def test_bytes_are_those_of_every_micro_batch(seed: int) -> None:
    case = random_case(seed, ranks=16, stages=(1, 2, 4)[seed % 3], sizes=SIZES)
    plan, software = case.plan(), stack("shardwright")
    most: dict[str, int] = {}
    for number, stage in enumerate(plan.program.stages):
        work = step_work(plan, software, number)
        items = [item for item in work if isinstance(item, Collective)]
        for level, size_bytes in sent_bytes(items, plan.cluster, stage, 0).items():
            most[level] = max(most.get(level, 0), size_bytes)
    found = {row.level: row.sent_bytes for row in level_bytes(plan, software, TECHNIQUES)}
    assert found == pytest.approx(most, abs=plan.program.schedule.microbatches)


def test_fewer_bits_are_shown_beside_the_plain_bytes() -> None:
    asked = {"global_batch": 64, "seq_len": 256, "shard": "zero1", "calibration": "none"}
    cluster = "2x8xA100-80GB@1x200G-IB"
    plain = sw.simulate("gpt2", cluster, **asked).report.plan
    packed = sw.simulate(
        "gpt2", cluster, **asked, techniques={"quantized_communication": "sdp4bit"}
    ).report.plan
    rows = level_bytes(packed, stack("shardwright"), TECHNIQUES)
    before = level_bytes(plain, stack("shardwright"), TECHNIQUES)
    assert [row.plain_bytes for row in rows] == [row.sent_bytes for row in before]
    assert rows[-1].sent_bytes < 0.4 * before[-1].sent_bytes  # the table of tokens goes as it is
    assert all(row.plain_bytes is None for row in before)
