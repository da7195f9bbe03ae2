"""Flags shared by verbs, and contract flags that are not built."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, TypeVar

import click

from ...spec.choices import (
    ATTENTIONS,
    KERNEL_POLICIES,
    OBJECTIVES,
    OPTIMIZERS,
    OVERLAPS,
)
from ...spec.inputs.preference import PREFERENCES
from ...spec.limits import MAX_SEQ_LEN
from ...spec.workload.number_formats import DTYPE_BYTES, SHORTHANDS
from .value_types import (
    InputFileParam,
    NameParam,
    NumberParam,
    OutputFileParam,
    TokenCountParam,
    WholeNumberParam,
)

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

INPUT_NAMES = (
    "model",
    "cluster",
    "global_batch",
    "global_batch_tokens",
    "seq_len",
    "dtype",
    "grad_dtype",
    "communication_dtype",
    "master_dtype",
    "moment_dtype",
    "optimizer",
    "trainable",
    "expert_load",
    "lengths",
    "memory_gib",
    "host_gib",
    "nvme_gib",
    "stack",
    "attention",
    "overlap",
    "calibration",
    "objective",
    "prices",
    "allow",
)


def compose(*decorators: Decorator[Any]) -> Decorator[Any]:
    """Several decorators as one, the first listed on top."""
    return lambda function: reduce(lambda made, add: add(made), reversed(decorators), function)


class StackOption(click.Option):
    """``--stack``, whose help lists the catalogue's stacks and settings when it is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The flag and its help."""
        from ...datasets.catalogue.stack_settings import help_text

        self.help = help_text()
        return super().get_help_record(ctx)


def _stack_names() -> Iterable[str]:
    from ...datasets.catalogue.stack_settings import stack_names

    return stack_names()


def _table_names(table: str) -> Callable[[], Iterable[str]]:
    """Names of a catalogue table, read only on shell completion."""

    def names() -> Iterable[str]:
        from ...datasets.catalogue.tables import read_table

        return list(read_table(table))

    return names


preset_names = _table_names("presets")
"""Names of the bundled models."""


def _clusters() -> Iterable[str]:
    from ...datasets.catalogue.tables import read_table

    devices = [f"8x{name}" for name in read_table("devices") if name != "cpu"]
    clouds = read_table("instances").values()
    return ["local", *devices, *(name for cloud in clouds for name in cloud["instances"])]


def _fixed_names(*names: str) -> Callable[[], Iterable[str]]:
    return lambda: names


PLAN_FILE = click.argument("plan_file", metavar="PLAN.json", required=False, type=InputFileParam())
MODEL_TYPE = NameParam("M", preset_names)
CLUSTER_TYPE = NameParam("C", _clusters)

PROBLEM = compose(
    click.option("--model", type=MODEL_TYPE,
                 help="Preset, config.json or its folder, typed YAML/JSON, or cached hub name."),
    click.option("--cluster", type=CLUSTER_TYPE,
                 help="NODESxDEVICESxTYPE[@FABRIC], NxTYPE, a cloud's instances (4xp4de.24xlarge), "
                      "groups joined with +, kinds in one node as 1x(4xA100+4xV100), local[:N], or "
                      "a YAML/JSON file."),
    click.option("--global-batch", type=WholeNumberParam(usual=512), help="Samples a step."),
    click.option("--global-batch-tokens", type=WholeNumberParam(usual=2**22),
                 help="Tokens a step instead of samples."),
    click.option("--seq-len", type=WholeNumberParam(most=MAX_SEQ_LEN, usual=4096),
                 help="Tokens of a sample."),
    click.option("--dtype", type=NameParam("D", _fixed_names(*SHORTHANDS)),
                 help="bf16, fp16, fp32, or bf16 with products in fp8, fp8-delayed, fp8-block, "
                      "mxfp8 or nvfp4; states are fp32 unless said."),
    click.option("--grad-dtype", type=NameParam("D", _fixed_names(*DTYPE_BYTES)),
                 help="Format that gradients add up and are reduced in: fp32, bf16 or fp16."),
    click.option("--communication-dtype", type=NameParam("D", _fixed_names(*DTYPE_BYTES)),
                 help="Format that gradients are reduced in, if another: fp32, bf16 or fp16."),
    click.option("--master-dtype", type=NameParam("D", _fixed_names("none", *DTYPE_BYTES)),
                 help="Master weights: fp32, bf16, fp16, or none beside the parameters."),
    click.option("--moment-dtype", type=NameParam("D", _fixed_names(*DTYPE_BYTES)),
                 help="The optimizer's moments: fp32, bf16 or fp16."),
    click.option("--optimizer", type=NameParam("O", _fixed_names(*OPTIMIZERS)),
                 help="adamw, adam, adamw8bit, lion, muon, sgd or adafactor."),
    click.option("--memory-gib", type=NumberParam(unit="GiB", most=2.0**30),
                 help="Cap on a device's memory, its context included."),
    click.option("--host-gib", type=NumberParam(unit="GiB", most=2.0**30),
                 help="Memory of its host that a device may use, for offloading."),
    click.option("--nvme-gib", type=NumberParam(unit="GiB", most=2.0**30),
                 help="Room on its host's drives that a device may use, for offloading."),
    click.option("--trainable",
                 type=NameParam("T", _fixed_names("full", "lora", "lora:", "frozen:")),
                 help="full, lora:rank=16,alpha=32,targets=query,value or frozen:TOWER,…; PEFT's "
                      "names do too (lora:r=16,target_modules=all-linear); with base_dtype=nf4 or "
                      "int8 in lora, frozen layers take 4 or 8 bits."),
    click.option("--expert-load",
                 type=NameParam("even|power:A|FILE", _fixed_names("even", "power:1")),
                 help="Load of each layer's experts: even (default), power:A (the k-th gets a "
                      "share that falls as k^-A), or a trace of plan execute --routing-trace."),
    click.option("--lengths", type=InputFileParam(), metavar="FILE",
                 help="The data.json of plan data: documents of these lengths share a sequence, "
                      "none sees another; left out, a sequence is one document."),
)  # fmt: skip
"""The problem: model, machine, workload."""

COST = compose(
    click.option("--prices", type=InputFileParam(), metavar="FILE",
                 help="YAML or JSON: currency, device_hour: {DEVICE or GROUP: price}, and "
                      "node_hour if a node costs more than its devices. Idle devices cost "
                      "nothing."),
    click.option("--tokens", type=TokenCountParam(),
                 help="Tokens to train on, such as 300B, 2T or 15e12: the answer has days, "
                      "device-hours and, with --prices, the cost."),
)  # fmt: skip
"""Prices, and the length of a whole training."""

OBJECTIVE = compose(
    click.option("--objective", type=NameParam("O", _fixed_names(*OBJECTIVES)),
                 help="What is best: throughput (default); cost a token, under --prices; "
                      "largest-batch[:GRAIN], the most samples a step without gradient "
                      "accumulation (a pipeline is filled once), in multiples of GRAIN (1); "
                      "largest-sequence[:GRAIN], the longest sequence at --global-batch, in "
                      "multiples of GRAIN (1024). The largest that fit come with their fastest "
                      "plan."),
    click.option("--prefer", type=NameParam("simple[:P%]|best", _fixed_names(*PREFERENCES)),
                 help="simple (default): the simplest plan within P per cent (1) of the best: "
                      "fewest strategies, kinds of parallelism and chunks, even stages. best: the "
                      "best."),
)  # fmt: skip
"""The objective."""

PRICE_SOURCE = compose(
    click.option("--stack", cls=StackOption, type=NameParam("NAME[:SETTINGS]", _stack_names)),
    click.option("--calibration", type=NameParam("NAME|none", _fixed_names("none")),
                 help="A stored calibration (plan calibrate); none: no profile of this machine."),
)  # fmt: skip
"""Sources of prices."""

PRICING = compose(
    PRICE_SOURCE,
    click.option("--oom-risk", type=NumberParam(most=0.5), metavar="R",
                 help="Accepted chance of running out of memory (default 0.05)."),
)  # fmt: skip
"""Sources of prices, and the memory rule."""

KERNELS = compose(
    click.option("--attention", type=NameParam("A", _fixed_names(*ATTENTIONS)),
                 help="flash or unfused."),
    click.option("--overlap", type=NameParam("O", _fixed_names(*OVERLAPS)),
                 help="Communication that hides behind computation: none, dp, dp+tp or all."),
)  # fmt: skip
"""Choices of the stack that a verb may change."""

JSON_OPTION = click.option(
    "--json",
    "json_target",
    type=OutputFileParam(dash=True),
    help="Write JSON here; - prints it alone.",
)

RUN_OPTIONS = compose(
    click.option("--steps", type=WholeNumberParam(most=10**9), metavar="N",
                 help="Optimizer step to reach (default 20)."),
    click.option("--verify", is_flag=True, help="Compare losses and gradients with one process."),
    click.option("--lr", metavar="R",
                 help="Learning rate: a number, or cosine:peak=3e-4,warmup=100,steps=1000 "
                 "(default 1e-3)."),
)  # fmt: skip
"""A run's length and checks."""


RUN_FILES = compose(
    click.option("--data", type=InputFileParam(), metavar="PATH",
                 help="Text file or folder, a folder of plan data, or token numbers (.npy, .bin); "
                      "else Python's sources."),
    click.option("--tokenizer", type=InputFileParam(), metavar="PATH",
                 help="A tokenizer.json for the data."),
    click.option("--kernels", type=NameParam("K", lambda: KERNEL_POLICIES),
                 help="auto (the best that run here), portable or fused."),
    click.option("--trace", type=OutputFileParam(),
                 help="Write a traced step and its memory for Perfetto."),
    click.option("--dry-run", is_flag=True, help="Say which ranks would do what; run nothing."),
    click.option("--routing-trace", type=OutputFileParam(), metavar="FILE",
                 help="Write the tokens of each expert in each step (CSV), for --expert-load."),
    click.option("--out-dir", type=InputFileParam(), metavar="DIR",
                 help="Keep losses.csv here (default: beside the checkpoints)."),
    click.option("--init-from", type=InputFileParam(), metavar="PATH",
                 help="Start from the weights of a checkpoint of any kind."),
    click.option("--save-hf", type=OutputFileParam(), metavar="DIR",
                 help="Write the trained weights, or adapters, as such a folder."),
)  # fmt: skip
"""What a run reads and writes."""

CHECKPOINTS = compose(
    click.option("--checkpoint", type=InputFileParam(), metavar="DIR",
                 help="Save checkpoints here, after the last step too."),
    click.option("--every", type=WholeNumberParam(), metavar="N",
                 help="Steps between checkpoints (default 100)."),
    click.option("--keep", type=WholeNumberParam(), metavar="N",
                 help="Checkpoints to keep, the newest (default 3)."),
    click.option("--resume", type=InputFileParam(), metavar="DIR",
                 help="Go on from the newest good checkpoint here, under any plan of the model."),
    click.option("--new-stage", is_flag=True,
                 help="With --resume: weights and moments alone, for another text or batch."),
)  # fmt: skip
"""Checkpoints of a run."""

EXECUTION = compose(RUN_OPTIONS, RUN_FILES, CHECKPOINTS)
"""All that ``plan execute`` takes beside its plan, as ``plan --execute`` does."""
RUN_FLAGS = (
    "steps", "verify", "lr", "data", "tokenizer", "kernels", "trace", "dry_run", "routing_trace",
    "out_dir",
    "init_from", "save_hf", "checkpoint", "every", "keep", "resume",
    "new_stage",
)  # fmt: skip
"""Their names."""


def typed_inputs(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags that resolve into a problem."""
    return {name: flags[name] for name in INPUT_NAMES if name in flags}
