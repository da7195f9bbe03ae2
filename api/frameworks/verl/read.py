"""Read the actor's update of verl's YAML.

Names and defaults: verl verl/trainer/config (actor, engine, optim, model) and
verl/workers/engine/fsdp/transformer_impl.py at 0.9.1. A step is one mini-batch: a forward and a
backward pass over prompts with their answers, and the optimizer. Rollout, reference, critic and
reward are other programs.
"""

from __future__ import annotations

from typing import Any

from ....spec.errors import InputError
from ..file_keys import FileKeys
from ..framework import Reading
from ..hub_names import hub_model
from ..settings import Settings, said
from .megatron_engine import megatron_settings
from .normal import ACTOR, MODEL, ROOT, mini_batch

FSDP = f"{ACTOR}fsdp_config."
STRATEGIES = ("fsdp", "fsdp2", "megatron")
FORMATS = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16",
           "fp32": "fp32", "float32": "fp32"}  # fmt: skip
OPTIMIZERS = {"AdamW": "adamw", "_AdamW": "adamw", "Adam": "adam", "AdamW8bit": "adamw8bit",
              "Adam8bit": "adamw8bit", "SGD": "sgd"}  # fmt: skip
UNSUPPORTED = {
    f"{MODEL}enable_activation_offload": "activations on the device",
    f"{MODEL}tiled_mlp.enabled": "feed-forward parts whole",
    f"{MODEL}mtp.enable_train": "the model's own layers",
    f"{ACTOR}qat.enable": "weights as they are",
    f"{FSDP}qat.enable": "weights as they are",
    f"{ACTOR}freeze_vision_tower": "training of all layers, or of adapters",
    f"{ACTOR}use_prefix_grouper": "prompts repeated for each answer",
    f"{FSDP}wrap_policy.min_num_params": "0, a unit a block",
    f"{FSDP}use_no_sync_for_gradient_accumulation": "gradients reduced each micro-batch",
}
"""Keys that change the update's price and that no plan here says, and what does."""
CACHE = f"{ROOT}rollout.free_cache_engine"


def read(reading: Reading) -> Settings:
    """The actor's update of a configuration.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    keys.refuse(UNSUPPORTED)
    if not keys.flag_or(CACHE, True):
        raise keys.unsupported(CACHE, "true: a rollout whose cache leaves the device before it")
    _check_devices(keys, reading.devices)
    strategy = keys.word_or(f"{ACTOR}strategy", "fsdp", STRATEGIES)
    keys.assume("actor", strategy, "alone: critic, reference and rollout hold none of the memory")
    _offloads(keys, f"{ACTOR}megatron." if strategy == "megatron" else FSDP)
    if strategy == "megatron":
        return megatron_settings(reading, _sequence(keys))
    return _fsdp(keys, reading.devices, strategy)


def _check_devices(keys: FileKeys, devices: int) -> None:
    """Refuse a cluster of other devices than the trainer's.

    Raises:
        InputError: it has more or fewer.
    """
    nodes, each = "trainer.nnodes", "trainer.n_gpus_per_node"
    if keys.has(nodes) is None and keys.has(each) is None:
        return
    count = keys.count_or(nodes, 1) * keys.count_or(each, 8)
    if count != devices:
        allowed = f"{count}: {nodes} x {each} of {keys.where}"
        raise InputError("--cluster", f"{devices} devices", allowed)


def _offloads(keys: FileKeys, section: str) -> None:
    """Note states that are on the host between updates."""
    names = ("param_offload", "optimizer_offload", "grad_offload")
    offloaded = [keys.flag_or(section + name) for name in names]  # each key is read
    if any(offloaded):
        why = "back on the device for the update; moving them is not priced"
        keys.assume("offload between updates", True, why)


def _sequence(keys: FileKeys) -> int:
    """Tokens of a sample, prompt and answer as long as they may be."""
    lengths = [keys.count_or(f"data.max_{part}_length", 512, note=True)
               for part in ("prompt", "response")]  # fmt: skip
    keys.assume("seq_len", sum(lengths), "prompt and answer at full length")
    return sum(lengths)


def _fsdp(keys: FileKeys, devices: int, strategy: str) -> Settings:
    ulysses = _ulysses(keys)
    if devices % ulysses:
        allowed = f"a divisor of the {devices} devices"
        raise keys.error(f"{ACTOR}ulysses_sequence_parallel_size", allowed)
    dp, tokens = devices // ulysses, _sequence(keys)
    whole = keys.flag_or(f"{MODEL}enable_gradient_checkpointing", True)
    offloads = keys.flag_or(f"{FSDP}offload_policy") and strategy == "fsdp2"
    batch = mini_batch(keys)
    return Settings(
        stack="verl:loss=chunked" if keys.flag_or(f"{MODEL}use_fused_kernels") else "verl",
        model=hub_model(keys, f"{MODEL}path"),
        inputs=said(
            global_batch=batch,
            seq_len=tokens,
            optimizer=_optimizer(keys),
            trainable=_trainable(keys),
            **_formats(keys),
        ),
        strategy=said(
            tp=ulysses,
            sp="ulysses" if ulysses > 1 else "none",
            pp=1,
            vpp=1,
            cp=1,
            schedule="1f1b",
            micro_batch=micro_batch(keys, batch, dp, tokens, ulysses),
            shard=_shard(keys, devices),
            recompute="full" if whole else "none",
            cpu_offload="all" if offloads else None,
        ),
    )


def _ulysses(keys: FileKeys) -> int:
    """Ranks of a sequence, under the engine's name or the actor's, which is older."""
    sizes = [keys.count_or(f"{section}ulysses_sequence_parallel_size", 1) or 1
             for section in (FSDP, ACTOR)]  # fmt: skip
    return sizes[0] if sizes[0] > 1 else sizes[1]


def micro_batch(keys: FileKeys, batch: int, dp: int, tokens: int, ranks: int) -> int:
    """Samples of a micro-batch on each replica.

    Args:
        keys: of the file.
        batch: samples of a step.
        dp: replicas.
        tokens: of a sample.
        ranks: that split a sample's tokens.

    Raises:
        InputError: nothing says it.
    """
    own, older = (f"{ACTOR}ppo_micro_batch_size{end}" for end in ("_per_gpu", ""))
    if keys.flag_or(f"{ACTOR}use_dynamic_bsz"):
        keys.has(own, older)
        most = keys.count_or(f"{ACTOR}ppo_max_token_len_per_gpu", 16384, note=True) * ranks
        share = max(1, batch // dp)
        fitting = [n for n in range(1, min(share, most // tokens) + 1) if share % n == 0]
        why = f"samples of {tokens} tokens, as many as {most} tokens hold, in equal micro-batches"
        return int(keys.assume(f"{ACTOR}use_dynamic_bsz", max(fitting, default=1), why))
    if keys.has(own):
        return keys.count(own)
    if keys.has(older):
        return max(1, keys.count(older) // dp)
    keys.require((own,))
    raise AssertionError(own)


def _shard(keys: FileKeys, devices: int) -> str:
    key = f"{FSDP}fsdp_size"
    size = keys.document.get(key, -1) if keys.has(key) else -1
    gathers = keys.flag_or(f"{FSDP}reshard_after_forward", True)
    if size == -1 or (isinstance(size, int) and size >= devices):
        return "zero3" if gathers else "zero2"
    size = keys.count(key)
    if devices % size:
        raise keys.error(key, f"-1, or a divisor of the {devices} devices")
    if size == 1:
        return "zero0"
    return f"hsdp:{size}" if gathers else f"1/{size}/{size}"


def _formats(keys: FileKeys) -> dict[str, str]:
    """Number formats of passes, reductions and states."""
    mixed = f"{FSDP}mixed_precision."
    names = tuple(FORMATS)
    passes = keys.word_or(f"{FSDP}dtype", "bfloat16", names)
    found = {
        "dtype": FORMATS[keys.word_or(f"{mixed}param_dtype", passes, names)],
        "communication_dtype": FORMATS[keys.word_or(f"{mixed}reduce_dtype", "fp32", names)],
    }
    keys.has(f"{mixed}buffer_dtype")
    states = FORMATS[keys.word_or(f"{FSDP}model_dtype", "fp32", names)]
    if states != "fp32":
        found |= {"grad_dtype": states, "master_dtype": "none", "moment_dtype": states}
    return found


def _optimizer(keys: FileKeys) -> str:
    key = f"{ACTOR}optim.optimizer"
    name = keys.text_or(key, "AdamW")
    if name not in OPTIMIZERS:
        raise keys.error(key, "one of " + ", ".join(OPTIMIZERS))
    return OPTIMIZERS[name]


def _trainable(keys: FileKeys) -> str | None:
    """Adapters, in the words of --trainable."""
    rank = keys.count_or(f"{MODEL}lora_rank", 0)
    if not rank:
        return None
    words: list[Any] = [f"r={rank}", f"alpha={keys.count_or(f'{MODEL}lora_alpha', 16)}"]
    key = f"{MODEL}target_modules"
    targets = keys.document[key] if keys.has(key) else "all-linear"
    names = ",".join(map(str, targets)) if isinstance(targets, list) else str(targets)
    return "lora:" + ",".join([*words, f"target_modules={names}"])
