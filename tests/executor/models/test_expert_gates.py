"""Gates, order and balance of experts on one process, by their definitions and transformers'."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from shardwright.executor.models.moe.gate import route
from shardwright.executor.models.moe.order import limited_rows
from shardwright.executor.models.moe.router import RouterClock, RouterState
from shardwright.spec.model.feed_forward import Balance, Moe, expert_capacity
from shardwright.spec.parallel.batch_partition import IndexRange

SEQ, BATCH, EXPERTS = 12, 4, 8
TOKENS = SEQ * BATCH
PLAIN: dict[str, Any] = {"experts": EXPERTS, "topk": 2, "ffn": 16}


def state(moe: Moe, step: int = 0) -> RouterState:
    """A router of all tokens of a step."""
    bias = torch.zeros(EXPERTS) if moe.balance and moe.balance.bias_rate else None
    return RouterState(
        layer=1,
        seed=3,
        clock=RouterClock(step=step, counts=True),
        samples=IndexRange(0, BATCH),
        tokens=(IndexRange(0, SEQ),),
        seq_len=SEQ,
        all_tokens=TOKENS,
        losses=torch.zeros(2, dtype=torch.float64),
        load=torch.zeros(EXPERTS, dtype=torch.float64),
        bias=bias,
    )


def logits_of(seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(SEQ, BATCH, EXPERTS) + torch.linspace(0, 1.5, EXPERTS)


def dropped(ids: Tensor, weights: Tensor, moe: Moe, capacity: int) -> set[tuple[int, int]]:
    """The reference: (token, choice) beyond each expert's capacity."""
    order = [(k, t) for k in range(moe.topk) for t in range(len(ids))]
    if moe.capacity_order == "probability":
        order.sort(key=lambda place: -float(weights[place[1], place[0]]))
    left, out = [capacity] * moe.experts, set()
    for k, t in order:
        expert = int(ids[t, k])
        if (moe.gate == "gshard" and weights[t, k] == 0) or not left[expert]:
            out.add((t, k))
        else:
            left[expert] -= 1
    return out


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25])
@pytest.mark.parametrize("fields", [
    {}, {"capacity_order": "probability"}, {"gate": "gshard"}, {"topk": 1, "gate": "switch"},
], ids=str)  # fmt: skip
def test_dropped_tokens_are_those_of_the_reference(fields: dict[str, Any], factor: float) -> None:
    moe = Moe(**(PLAIN | fields | {"capacity_factor": factor}))
    weights, ids = route(logits_of(), moe, state(moe))
    capacity = expert_capacity(moe, TOKENS)
    assert capacity == math.ceil(TOKENS * moe.topk * factor / EXPERTS)
    rows = limited_rows(ids, weights, moe, capacity)
    assert rows.filled is not None
    taken = rows.order[rows.filled > 0].tolist()
    assert len(set(taken)) == len(taken)
    kept = {divmod(place, moe.topk) for place in taken}
    every = {(t, k) for t in range(TOKENS) for k in range(moe.topk)}
    assert every - kept == dropped(ids, weights.detach(), moe, capacity)
    assert rows.offsets.tolist() == [capacity * (e + 1) for e in range(EXPERTS)]
    for place, row in enumerate(rows.order.tolist()):
        if rows.filled[place]:
            assert int(ids.flatten()[row]) == place // capacity


def test_the_auxiliary_loss_is_that_of_transformers() -> None:
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    moe = Moe(**PLAIN, balance=Balance(aux_loss=1.0))
    ours, theirs = (logits_of().requires_grad_() for _ in range(2))
    router = state(moe)
    weights, _ = route(ours, moe, router)
    (weights * 0).sum().backward()
    expected = load_balancing_loss_func((theirs.flatten(0, 1),), EXPERTS, 2)
    expected.backward()
    assert float(router.losses[0]) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert ours.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
@pytest.mark.parametrize("per", ["group", "sequence"])
def test_gradients_of_balances_are_autograds(score: Any, per: Any) -> None:
    balance = Balance(aux_loss=0.3, z_loss=0.2, per=per)
    moe = Moe(**PLAIN, score=score, balance=balance)
    ours, theirs = (logits_of(1).requires_grad_() for _ in range(2))
    router = state(moe)
    weights, ids = route(ours, moe, router)
    (weights * 0).sum().backward()
    scores = theirs.softmax(-1) if score == "softmax" else theirs.sigmoid()
    shares = scores / scores.sum(-1, keepdim=True)
    masks = torch.zeros(TOKENS, EXPERTS).scatter(1, ids, 1.0).view(SEQ, BATCH, EXPERTS)
    over = 0 if per == "sequence" else (0, 1)
    auxiliary = EXPERTS * (masks.mean(over) * shares.mean(over)).sum(-1).mean()
    z_loss = theirs.logsumexp(-1).square().mean()
    (balance.aux_loss * auxiliary + balance.z_loss * z_loss).backward()
    assert router.losses.tolist() == pytest.approx([auxiliary.item(), z_loss.item()], rel=1e-5)
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-7)


def test_a_bias_moves_the_choice_and_not_the_weights() -> None:
    moe = Moe(**PLAIN, balance=Balance(bias_rate=0.01))
    router, logits = state(moe), logits_of()
    assert router.bias is not None
    router.bias[0] = 2.0
    weights, ids = route(logits, moe, router)
    assert (ids == 0).any(-1).all()
    picked = logits.flatten(0, 1).softmax(-1).gather(1, ids)
    torch.testing.assert_close(weights, picked / picked.sum(-1, keepdim=True))


def test_draws_are_a_tokens_own() -> None:
    """Of half of the samples or positions they are the same numbers; of another step, others."""
    moe = Moe(**PLAIN, balance=Balance(jitter=0.1))
    x = torch.ones(SEQ, BATCH, 3)
    whole = state(moe).uniform("jitter", 3, x, 0.9, 1.1)
    part = state(moe)
    part.samples, part.tokens = IndexRange(2, BATCH), (IndexRange(4, SEQ),)
    assert torch.equal(part.uniform("jitter", 3, x, 0.9, 1.1), whole[4:, 2:])
    assert whole.min() >= 0.9
    assert whole.max() <= 1.1
    assert not torch.equal(state(moe, step=1).uniform("jitter", 3, x, 0.9, 1.1), whole)


def test_second_experts_are_kept_by_chance() -> None:
    moe = Moe(**PLAIN, gate="gshard")
    logits = torch.zeros(SEQ, BATCH, EXPERTS)
    logits[..., 0], logits[..., 1] = 5.0, 5.0 - math.log(7)  # the second weighs 1/8
    kept = [
        float((route(logits, moe, state(moe, s))[0][:, 1] > 0).float().mean()) for s in range(40)
    ]
    assert sum(kept) / 40 == pytest.approx(0.25, abs=0.04)


def test_raw_weights_are_the_scores() -> None:
    logits = logits_of()
    scores = logits.flatten(0, 1).softmax(-1)
    for moe in (Moe(**(PLAIN | {"topk": 1, "gate": "switch"})), Moe(**PLAIN, normalize=False)):
        weights, ids = route(logits, moe)
        torch.testing.assert_close(weights, scores.gather(1, ids))


def hf_router(kind: str) -> Any:
    from transformers import AutoConfig
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
    from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

    classes: dict[str, Any] = {
        "mixtral": MixtralTopKRouter,
        "qwen3_moe": Qwen3MoeTopKRouter,
        "deepseek_v2": DeepseekV2TopkRouter,
        "deepseek_v3": DeepseekV3TopkRouter,
    }
    names = {"mixtral": "num_local_experts", "qwen3_moe": "num_experts"}
    grouped = kind.startswith("deepseek")
    groups = {"n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy"}
    config = AutoConfig.for_model(
        kind,
        hidden_size=EXPERTS,
        num_attention_heads=1,
        num_experts_per_tok=2,
        routed_scaling_factor=1.0,
        **{names.get(kind, "n_routed_experts"): EXPERTS},
        **(groups if grouped else {}),
        **({} if kind == "deepseek_v2" else {"norm_topk_prob": kind != "qwen3_moe"}),
    )
    router = classes[kind](config)
    with torch.no_grad():
        router.weight.copy_(torch.eye(EXPERTS))
    return router


@pytest.mark.parametrize(("kind", "fields"), [
    ("mixtral", {}),
    ("qwen3_moe", {"normalize": False}),
    ("deepseek_v2", {"groups": 4, "groups_per_token": 2, "normalize": False}),
    ("deepseek_v3", {"groups": 4, "groups_per_token": 2, "score": "sigmoid",
                     "balance": Balance(bias_rate=0.01)}),
])  # fmt: skip
def test_routing_is_that_of_transformers_token_for_token(kind: str, fields: dict[str, Any]) -> None:
    moe, theirs, logits = Moe(**PLAIN, **fields), hf_router(kind), logits_of(2)
    router = state(moe)
    if router.bias is not None:
        router.bias.copy_(torch.linspace(0.3, -0.3, EXPERTS))
        theirs.e_score_correction_bias.copy_(router.bias)
    weights, ids = route(logits, moe, router)
    _, expected, chosen = theirs(logits.flatten(0, 1))
    first, second = ids.sort(-1), chosen.sort(-1)
    assert torch.equal(first.values, second.values)
    torch.testing.assert_close(
        weights.gather(1, first.indices), expected.gather(1, second.indices).detach().float()
    )
