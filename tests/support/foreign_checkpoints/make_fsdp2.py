"""Write a checkpoint of a transformers Llama under FSDP2: ``make_fsdp2.py DIR [hsdp|tp]``.

Two ranks with a nested optimizer state; hsdp and tp: four ranks, a flattened one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import sample_steps as common
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from transformers import LlamaConfig, LlamaForCausalLM

KIND = sys.argv[2] if len(sys.argv) > 2 else "fsdp"


def model_of() -> LlamaForCausalLM:
    """A small Llama."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=common.VOCAB,
        hidden_size=common.HIDDEN,
        intermediate_size=common.FFN,
        num_hidden_layers=common.LAYERS,
        num_attention_heads=common.HEADS,
        num_key_value_heads=common.KV_HEADS,
        max_position_embeddings=common.SEQ_LEN,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config)


def work(rank: int, ranks: int, folder: Path, batches: list[torch.Tensor]) -> list[float]:
    """Train under FSDP2."""
    model = model_of()
    mesh = init_device_mesh("cpu", (ranks,))
    if KIND != "fsdp":
        names = ("replicate", "shard") if KIND == "hsdp" else ("shard", "tp")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
    replicas = rank if KIND != "tp" else rank // 2
    if KIND == "tp":
        split = {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel()}
        for layer in model.model.layers:
            parallelize_module(layer, mesh["tp"], {**split, "mlp.down_proj": RowwiseParallel()})
        mesh = mesh["shard"]
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    groups = common.decayed_groups(model)
    optimizer = torch.optim.AdamW(
        groups, lr=common.LEARNING_RATE, betas=common.BETAS, foreach=False
    )
    count = 2 if KIND == "tp" else ranks
    losses = []
    for number, batch in enumerate(batches):
        if number == common.STEPS:
            options = StateDictOptions(flatten_optimizer_state_dict=KIND != "fsdp")
            weights, states = get_state_dict(model, optimizer, options=options)
            dcp.save({"model": weights, "optim": states}, checkpoint_id=folder)
        rows = batch.chunk(count)[replicas]
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(common.mean_over(None, loss))
    return losses


if __name__ == "__main__":
    common.main(work, 2 if KIND == "fsdp" else 4)
