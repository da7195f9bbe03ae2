"""Jobs for ranks: modules that nobody here wrote, in a training loop of their user's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import shardwright as sw
from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.reference.verify import gradient_difference
from shardwright.executor.user_module.parallelize import last_micro_batch
from shardwright.spec.plan.plan import plan_of

VOCAB, HIDDEN, SEQ, SAMPLES, LAYERS = 96, 32, 12, 8, 3


class Encoder(nn.Module):
    """torch's own encoder between a table and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, HIDDEN)
        layer = nn.TransformerEncoderLayer(
            HIDDEN, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, LAYERS, norm=nn.LayerNorm(HIDDEN), enable_nested_tensor=False
        )
        self.projection = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of tokens (batch, seq)."""
        hidden: Tensor = self.projection(self.encoder(self.words(tokens)))
        return hidden


def llama() -> nn.Module:
    """A small Llama of the transformers library."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        )
    )  # fmt: skip


def gpt2() -> nn.Module:
    """A small GPT-2 of the transformers library, without dropout; its ends are tied."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB, n_embd=HIDDEN, n_layer=LAYERS, n_head=4, n_positions=64,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip


MODULES: dict[str, Callable[[], nn.Module]] = {"llama": llama, "gpt2": gpt2, "encoder": Encoder}


def made(kind: str) -> nn.Module:
    """The module with the same weights wherever it is made."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODULES[kind]().train()


def _loss(module: nn.Module, tokens: Tensor) -> Tensor:
    out = module(tokens[:, :-1])
    logits = out if isinstance(out, Tensor) else out.logits
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _tokens(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(VOCAB, (SAMPLES, SEQ + 1), generator=generator)


def own_loop(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Three steps of a user's loop beside the same loop in one process."""
    plan = plan_of(payload["plan"], "plan")
    module = made(payload["kind"])
    alone = copy.deepcopy(module)
    sw.parallelize(module, plan)
    rows = SAMPLES // context.world_size // payload["micro_batches"]
    losses, expected, worst = [], [], 0.0
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (module, alone)]
    for step in range(3):
        tokens = _tokens(step)
        parts = tokens.split(rows)  # type: ignore[no-untyped-call]
        own, total = parts[context.rank :: context.world_size], 0.0
        for number, part in enumerate(own):
            last_micro_batch(module, plan, number == len(own) - 1)
            loss = _loss(module, part) / len(own)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item() / context.world_size
        every = torch.tensor(total, dtype=torch.float64)
        torch.distributed.all_reduce(every)
        losses.append(every.item())
        whole = _loss(alone, tokens)
        whole.backward()  # type: ignore[no-untyped-call]
        expected.append(whole.item())
        if step == 0:
            worst = _gradients_apart(module, alone)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return {"losses": losses, "expected": expected, "worst": worst}


def _gradients_apart(module: nn.Module, alone: nn.Module) -> float:
    found = {n: p.grad.full_tensor() for n, p in module.named_parameters()}  # type: ignore[union-attr]
    reference = {n: p.grad for n, p in alone.named_parameters() if p.grad is not None}
    return gradient_difference(found, reference)[0]
