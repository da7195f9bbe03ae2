"""Write a checkpoint of torchtitan 0.3's Llama under FSDP2: ``make_torchtitan.py DIR``.

In an environment of its own: pip install torchtitan==0.3 torch==2.13.0 (the build for cores, for
which what it imports of triton is stubbed).
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import MagicMock

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import sample_steps as common  # isort: skip


NAMED = "tok_embeddings.weight."
"""The weight whose settings and step are kept; all have the same, and the sample stays small."""
SETTINGS = ("lr", "weight_decay", "step")


def is_kept(name: str) -> bool:
    """True for moments, and for the settings of one weight."""
    group, _, rest = name.partition(".")
    if group == "state" and not rest.endswith(".step"):
        return True
    return rest.startswith(NAMED) and rest.rpartition(".")[2] in SETTINGS


def model_of() -> torch.nn.Module:
    """A small Llama."""
    sys.modules["torchtitan.distributed.minimal_async_ep.kernels"] = MagicMock()
    import torchtitan.models.llama3 as llama

    dim = common.HIDDEN
    rope = llama.ComplexRoPE.Config(
        dim=dim // common.HEADS, max_seq_len=64, theta=10000, scaling="none"
    )
    config = llama.Llama3Model.Config(
        dim=dim,
        vocab_size=common.VOCAB,
        tok_embeddings=llama.Embedding.Config(
            num_embeddings=common.VOCAB, embedding_dim=dim, param_init=llama._EMBEDDING_INIT
        ),
        norm=llama.RMSNorm.Config(normalized_shape=dim, param_init=llama._NORM_INIT, eps=1e-6),
        lm_head=llama.Linear.Config(
            in_features=dim, out_features=common.VOCAB, param_init=llama._output_linear_init(dim)
        ),
        layers=llama._build_llama3_layers(
            fuse_qkv=False,
            n_layers=common.LAYERS,
            dim=dim,
            n_heads=common.HEADS,
            n_kv_heads=common.KV_HEADS,
            hidden_dim=common.FFN,
            rope=rope,
            attn_backend="flex",
        ),
    )
    return config.build()


class CausalAttention(torch.nn.Module):
    """Attention of cores in the place of flex attention; (batch, length, heads, width)."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float | None = None,
        **_: object,
    ) -> torch.Tensor:
        """Attend to earlier tokens."""
        parts = [x.transpose(1, 2) for x in (query, key, value)]
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(*parts, is_causal=True, scale=scale, enable_gqa=True).transpose(1, 2)


def work(rank: int, ranks: int, folder: Path, batches: list[torch.Tensor]) -> list[float]:
    """Train under FSDP2."""
    torch.manual_seed(3)
    model = model_of()
    model.init_states(buffer_device=torch.device("cpu"))
    for layer in model.layers.values():
        layer.attention.inner_attention = CausalAttention()
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    groups = common.decayed_groups(model)
    optimizer = torch.optim.AdamW(groups, lr=common.LEARNING_RATE, betas=common.BETAS)
    losses = []
    for number, batch in enumerate(batches):
        if number == common.STEPS:
            flat = StateDictOptions(flatten_optimizer_state_dict=True)
            states = get_optimizer_state_dict(model, optimizer, options=flat)
            states = {key: value for key, value in states.items() if is_kept(key)}
            step = {"step": torch.tensor(common.STEPS, dtype=torch.int32)}
            weights = get_model_state_dict(model)
            dcp.save({**weights, "optimizer": states, "train_state": step}, checkpoint_id=folder)
        rows = batch.chunk(ranks)[rank]
        logits = model(rows[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(common.mean_over(None, loss))
    return losses


if __name__ == "__main__":
    common.main(work, 2)
