"""Write a checkpoint of Megatron-core 0.16.1: ``make_megatron.py DIR [llama|gpt|mixtral]``.

TP 2, DP 2 over gloo with its distributed optimizer in its fully reshardable form. In an environment
of its own: pip install megatron-core==0.16.1 torch==2.13.0 psutil (the build for cores; what it
asks of CUDA is stubbed).
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import sample_steps as common
import torch
from torch.overrides import TorchFunctionMode

KIND = sys.argv[2] if len(sys.argv) > 2 else "llama"


class ToCores(TorchFunctionMode):
    """Puts on the cores what is asked for on a GPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call with another device."""
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if isinstance(device, int) or str(device).startswith("cuda"):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.type and len(args) == 1:
            return function(*args).replace("torch.", "torch.cuda.")
        return args[0] if function is torch.Tensor.cuda else function(*args, **kwargs)


def model_of() -> Any:
    """A small GPT, Llama or Mixtral."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    gpt, moe = KIND == "gpt", {}
    if KIND == "mixtral":
        moe = {
            "num_moe_experts": 4,
            "moe_router_topk": 2,
            "moe_aux_loss_coeff": 0.0,
            "moe_router_load_balancing_type": "none",
            "moe_token_dispatcher_type": "alltoall",
        }
    config = TransformerConfig(
        num_layers=common.LAYERS,
        hidden_size=common.HIDDEN,
        num_attention_heads=common.HEADS,
        num_query_groups=common.HEADS if gpt else common.KV_HEADS,
        ffn_hidden_size=common.FFN,
        gated_linear_unit=not gpt,
        activation_func=torch.nn.functional.gelu if gpt else torch.nn.functional.silu,
        normalization="LayerNorm" if gpt else "RMSNorm",
        add_bias_linear=gpt,
        layernorm_epsilon=1e-5 if gpt else 1e-6,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        tensor_model_parallel_size=2,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        persist_layer_norm=False,
        **moe,
    )
    experts = 4 if moe else None
    layers = get_gpt_layer_local_spec(num_experts=experts, normalization=None if gpt else "RMSNorm")
    return GPTModel(
        config,
        layers,
        vocab_size=common.VOCAB,
        max_sequence_length=common.SEQ_LEN,
        position_embedding_type="learned_absolute" if gpt else "rope",
        share_embeddings_and_output_weights=gpt,
        parallel_output=True,
    )


def optimizer_of(model: Any) -> Any:
    """Its distributed Adam."""
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    config = OptimizerConfig(
        optimizer="adam",
        lr=common.LEARNING_RATE,
        weight_decay=common.WEIGHT_DECAY,
        adam_beta1=common.BETAS[0],
        adam_beta2=common.BETAS[1],
        adam_eps=1e-8,
        use_distributed_optimizer=True,
        clip_grad=0.0,
        params_dtype=torch.float32,
    )
    return get_megatron_optimizer(config, [model])


def stub_cuda() -> None:
    """Let what waits for a GPU return at once."""
    from megatron.core.tensor_parallel import random

    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    random.CudaRNGStatesTracker.fork = lambda self, name="": contextlib.nullcontext()


def work(rank: int, ranks: int, folder: Path, batches: list[torch.Tensor]) -> list[float]:
    """Train under tensor and data parallelism."""
    del ranks
    stub_cuda()
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    group = parallel_state.get_data_parallel_group()
    torch.manual_seed(5)
    losses = []
    with ToCores():
        inner = model_of()
        settings = DistributedDataParallelConfig(use_distributed_optimizer=True)
        model = DistributedDataParallel(inner.config, settings, inner)
        model.broadcast_params()
        optimizer = optimizer_of(model)
        for number, batch in enumerate(batches):
            if number == common.STEPS:
                form = {"distrib_optim_sharding_type": "fully_reshardable"}
                weights = inner.sharded_state_dict(metadata=form)
                states = optimizer.sharded_state_dict(weights, metadata=form)
                if rank == 0:
                    folder.mkdir(parents=True, exist_ok=True)
                torch.distributed.barrier()
                state = {**weights, "optimizer": states, "iteration": common.STEPS}
                dist_checkpointing.save(state, str(folder))
            rows = batch.chunk(2)[parallel_state.get_data_parallel_rank()]
            model.zero_grad_buffer()
            optimizer.zero_grad()
            positions = torch.arange(common.SEQ_LEN).expand(len(rows), -1)
            hidden = torch.ones(1, 1, common.SEQ_LEN, common.SEQ_LEN).tril() < 0.5
            loss = model(rows[:, :-1], positions, hidden, labels=rows[:, 1:]).mean()
            loss.backward()
            finalize_model_grads([model])
            optimizer.step()
            losses.append(common.mean_over(group, loss))
    return losses


if __name__ == "__main__":
    common.main(work, 4)
