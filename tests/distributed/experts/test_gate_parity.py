"""Gates, balances and capacity on ranks, against the single-process reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checks.run_checks import check_case
from generators.plan_cases import Case
from ranks.checkpoint_matrix import payload
from ranks.expert_runs import ExpertSizes, spread
from ranks.rank_pools import RankPool

from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.model.feed_forward import Balance, Moe
from shardwright.spec.strategy import LayerStrategy

EXPERTS = {"experts": 4, "ffn": 16}
GATES = {
    "topk": Moe(**EXPERTS, topk=2),
    "sigmoid": Moe(**EXPERTS, topk=2, score="sigmoid"),
    "raw": Moe(**EXPERTS, topk=2, normalize=False),
    "switch": Moe(**EXPERTS, topk=1, gate="switch"),
    "gshard": Moe(**EXPERTS, topk=2, gate="gshard"),
    "xmoe": Moe(**EXPERTS, topk=2, gate="xmoe", gate_width=8),
    "expert_choice": Moe(**EXPERTS, topk=2, gate="expert_choice"),
    "soft": Moe(**EXPERTS, topk=1, gate="soft", slots=2),
}
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
LAYOUTS = {
    "ep4": ({}, LayerStrategy(ep=4)),
    "ep2 etp2": ({}, LayerStrategy(ep=2, etp=2)),
    "ep2 dp2": ({}, LayerStrategy(ep=2)),
    "ep2 tp2 sp pp2": ({"stages": 2, "micro_batch": 2}, replace(TP2_SP, ep=2)),
}
BALANCE = Balance(aux_loss=0.05, z_loss=0.01, bias_rate=0.02, jitter=0.1)


def case(moe: Moe, layout: str, name: str) -> Case:
    fields, strategy = LAYOUTS[layout]
    sizes = ExpertSizes(blocks=2, moe=moe)
    return spread(Case(name=f"{name} {layout}", sizes=sizes, **fields), strategy)  # type: ignore[arg-type]


def every_gate() -> list[Case]:
    found = []
    for number, (name, moe) in enumerate(GATES.items()):
        for factor in (None, 1.0, 1.25):
            if factor is not None and name == "soft":
                continue
            layouts = [*LAYOUTS] if name == "topk" else [*LAYOUTS][number % 2 :: 2]
            if name == "soft":
                layouts = ["ep4", "ep2 etp2"]
            found += [
                case(replace(moe, capacity_factor=factor), layout, f"{name} {factor}")
                for layout in layouts
            ]
    return found


BALANCED = [
    case(replace(moe, balance=BALANCE, capacity_factor=factor), layout, f"balanced {name}")
    for name, moe, factor, layout in (
        ("topk", GATES["topk"], None, "ep4"),
        ("topk", GATES["topk"], None, "ep2 tp2 sp pp2"),
        ("sigmoid", GATES["sigmoid"], None, "ep2 etp2"),
        ("gshard", GATES["gshard"], 1.25, "ep2 dp2"),
    )
]


@pytest.mark.parametrize("case", [*every_gate(), *BALANCED], ids=lambda c: c.name)
def test_a_gate_runs_as_on_one_process(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)


def test_balances_go_on_from_a_checkpoint_bit_by_bit(four_ranks: RankPool, tmp_path: Path) -> None:
    """Biases and draws too; and under another plan, as one process goes on from there."""
    moe = replace(GATES["topk"], balance=BALANCE)
    whole, other = case(moe, "ep2 dp2", "resumed"), case(moe, "ep2 tp2 sp pp2", "resumed")

    def run(planned: Case, verify: bool = False, **checkpoint: Any) -> dict[str, Any]:
        asked = payload(planned, 4, **checkpoint) | {"verify": verify}
        result: dict[str, Any] = four_ranks.run(TRAIN_JOB, asked)[0]
        return result

    first = run(whole, folder=str(tmp_path), every=2)["measured"]
    saved = str(tmp_path / "step-00000002")
    again = run(whole, resume=saved, verify=True)["measured"]
    assert again["losses"] == first["losses"][2:]
    assert again["balance"] == {key: rows[2:] for key, rows in first["balance"].items()}
    assert first["balance"]["fullest_over_mean"][0] > 1
    run(other, resume=saved, verify=True)
