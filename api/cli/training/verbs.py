"""The verbs ``diagnose`` and ``size``, with their flags."""

from __future__ import annotations

from typing import Any

import click

from ..flags import JSON_OPTION, KERNELS, PRICE_SOURCE, PRICING, PROBLEM, compose
from ..frameworks.verbs import SOURCE
from ..value_types import (
    InputFileParam,
    NameParam,
    NumberParam,
    OutputFileParam,
    TokenCountParam,
)


def diagnose_verb(strategy: Any) -> click.Command:
    """The verb ``diagnose`` with simulate's strategy flags."""

    @click.command(
        "diagnose",
        options_metavar="[FLAGS]",
        short_help="Explain a measured run, and rank what would make it faster.",
    )
    @click.argument("path", metavar="LOG|FILE", required=False, type=InputFileParam())
    @compose(
        click.option("--config", type=InputFileParam(), metavar="FILE",
                     help="Configuration or plan of a log that prints none."),
        SOURCE,
        click.option("--measured-step", type=NumberParam(unit="seconds"), metavar="S",
                     help="Seconds of a measured step, in place of a log's."),
        click.option("--tokens-per-s", type=NumberParam(unit="tokens a second"), metavar="R",
                     help="Measured tokens a second of all devices, likewise."),
        click.option("--trace", type=InputFileParam(), metavar="FILE",
                     help="A trace of one rank by torch.profiler (JSON, also .gz)."),
        PROBLEM,
        strategy,
        KERNELS,
        PRICING,
        JSON_OPTION,
    )  # fmt: skip
    def diagnose(**flags: Any) -> None:
        """Explain a measured run by its configuration, and rank changes by what they gain.

        A log of Megatron-LM, torchtitan, DeepSpeed or transformers' Trainer; or a configuration or
        plan with a measured figure. Flags say what the file leaves out.
        """
        from .diagnose import diagnose_command

        diagnose_command(flags)

    return diagnose


@click.command(
    "size",
    options_metavar="[FLAGS]",
    short_help="Say how many devices, days and how much a training takes.",
)
@compose(
    click.option("--device", type=NameParam("D[@FABRIC]", tuple),
                 help="A curve over the number of this device, from 8 to 16384, in usual nodes."),
    click.option("--tokens", type=TokenCountParam(),
                 help="Tokens to train on, such as 300B or 2T; with --cluster those of an epoch."),
    click.option("--within", metavar="30d", help="Time that the training may take: h, d or w."),
    click.option("--budget", type=NumberParam(unit="the prices' currency"), metavar="B",
                 help="What it may cost, under --prices."),
    click.option("--prices", metavar="FILE|D=2.5",
                 help="A price file (docs/objectives.md), or a device-hour, D=2.5 or D=2.5EUR."),
    click.option("--scaling", metavar="strong|weak|both",
                 help="The batch that is fixed: a step's (strong, usual), a device's (weak)."),
    click.option("--epochs", type=NumberParam(unit="epochs"), metavar="E",
                 help="With --cluster: how often the tokens are trained on (1)."),
    click.option("--deadline", type=NumberParam(unit="seconds", most=3600), metavar="S",
                 help="Seconds of all full searches (180; with --cluster none is made)."),
    click.option("--plot", type=OutputFileParam(), metavar="FILE.svg", help="Draw the curve."),
    PROBLEM,
    KERNELS,
    PRICE_SOURCE,
    JSON_OPTION,
)  # fmt: skip
def size(**flags: Any) -> None:
    """Say how many devices a training needs, for how long, at what cost.

    With --device: days, cost and MFU by number of devices; with --within or --budget the smallest
    number that meets them. With --cluster: hours of full fine-tuning, LoRA and QLoRA on it.
    """
    from .size import size_command

    size_command(flags)
