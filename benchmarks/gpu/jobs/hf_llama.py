"""The same training step in plain transformers code, as a process.

    python -m gpu.jobs.hf_llama CASE.json RESULT.json

Model and loss are the library's, with liger-kernel's kernels and torch.compile where the case
asks for them, fused AdamW, gradients clipped to norm 1, random tokens. Weights are bf16
throughout, or float32 under autocast as the executor keeps them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from gpu.orphan import end_with_parent

WARM_UP = 2


def main(case_path: str, result_path: str) -> None:
    """Train a few steps and write what they took."""
    end_with_parent()
    case = json.loads(Path(case_path).read_text(encoding="utf-8"))
    device = torch.device(case["device"])
    model = _model(case, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    times, losses = [], []
    for step in range(case["steps"]):
        _synchronize(device)
        start_s = time.perf_counter()
        losses.append(_step(case, model, optimizer, device, step))
        _synchronize(device)
        times.append(time.perf_counter() - start_s)
        if step == WARM_UP - 1 and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
    result = {
        "step_time_s": statistics.median(times[WARM_UP:]),
        "times_s": times,
        "losses": [losses[0], losses[-1]],
        "parameters": sum(p.numel() for p in model.parameters()),
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    }
    Path(result_path).write_text(json.dumps(result), encoding="utf-8")


def _model(case: dict[str, Any], device: torch.device) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    if case["liger"]:
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        apply_liger_kernel_to_llama()
    config = LlamaConfig(
        vocab_size=case["vocab"],
        hidden_size=case["hidden"],
        intermediate_size=case["ffn"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"],
        max_position_embeddings=case["seq_len"],
        tie_word_embeddings=True,
        use_cache=False,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    with device:
        model = LlamaForCausalLM(config)
    model = model.to(torch.float32 if case["autocast"] or device.type == "cpu" else torch.bfloat16)
    model.train()
    if case["compile"]:
        model.compile(dynamic=False)
    return model


def _step(
    case: dict[str, Any],
    model: Any,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    step: int,
) -> float:
    """One optimizer step of the global batch, in micro-batches; the mean loss."""
    parts = case["global_batch"] // case["micro_batch"]
    generator = torch.Generator().manual_seed(step)
    total = torch.zeros((), device=device)
    for _ in range(parts):
        shape = (case["micro_batch"], case["seq_len"])
        tokens = torch.randint(case["vocab"], shape, generator=generator).to(device)
        with _precision(case, device):
            loss = model(input_ids=tokens, labels=tokens).loss / parts
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(total)


def _precision(case: dict[str, Any], device: torch.device) -> AbstractContextManager[object]:
    if case["autocast"] and device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main(*sys.argv[1:])
