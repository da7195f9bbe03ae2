"""The verbs ``import`` and what reads frameworks' files, with their flags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from ..flags import (
    CLUSTER_TYPE,
    JSON_OPTION,
    KERNELS,
    MODEL_TYPE,
    PLAN_FILE,
    PRICING,
    PROBLEM,
    compose,
)
from ..value_types import InputFileParam, NameParam, OutputFileParam


def _names() -> Iterable[str]:
    from ...frameworks.shipped import FRAMEWORKS

    return [item.name for item in FRAMEWORKS]


FRAMEWORK_TYPE = NameParam("T", _names)
SOURCE = click.option(
    "--from",
    "source",
    type=FRAMEWORK_TYPE,
    help="Framework of the file, where its keys do not tell it.",
)
FILE_OPTIONS = compose(
    SOURCE,
    click.option("--model", type=MODEL_TYPE,
                 help="With a framework's file: the model, where the file does not say it."),
    click.option("--cluster", type=CLUSTER_TYPE,
                 help="With a framework's file: the machines that it is for."),
    click.option("--global-batch", type=int, help="With a framework's file: samples a step."),
    click.option("--seq-len", type=int, help="With a framework's file: tokens of a sample."),
)  # fmt: skip
"""What a framework's file leaves out, on verbs that take one in place of a plan."""


FOR_FRAMEWORK = click.option(
    "--for",
    "framework",
    type=FRAMEWORK_TYPE,
    help="Keep to what a framework can run and its files can say, at its prices; the gain of the "
    "free plan is one line.",
)


def import_verb(strategy: Any) -> click.Command:
    """The verb ``import`` with simulate's strategy flags."""

    @click.command(
        "import", options_metavar="[FLAGS]", short_help="Read a framework's file as a plan."
    )
    @click.argument("plan_file", metavar="FILE", required=False, type=InputFileParam())
    @compose(
        SOURCE,
        PROBLEM,
        strategy,
        KERNELS,
        PRICING,
        click.option("--out", type=OutputFileParam(), help="Write the plan here."),
        JSON_OPTION,
    )
    def import_plan(**flags: Any) -> None:
        """Read another framework's configuration as a plan, and price it.

        Flags say what the file leaves out. Keys that change nothing known here are listed; one that
        changes the price and has no counterpart is refused by name.
        """
        from .import_plan import import_command

        import_command(flags)

    return import_plan


def _targets() -> Iterable[str]:
    from ...frameworks.shipped import WRITTEN

    return ("html", "svg", "png", *WRITTEN)


@click.command(
    "export",
    options_metavar="[FLAGS]",
    short_help="Write a plan as a page, a picture or a framework's files.",
)
@PLAN_FILE
@compose(
    click.option("--to", type=NameParam("T", _targets),
                 help="html, a page that loads nothing from elsewhere; svg or png, a picture (png "
                      "needs matplotlib); megatron, megatron-bridge, torchtitan, deepspeed, "
                      "accelerate, galvatron or verl, the files that it reads."),
    click.option("--out", type=OutputFileParam(), metavar="FILE|DIR",
                 help="Where to write it (default: beside the plan)."),
    click.option("--launcher", metavar="L",
                 help="Files that start a framework's run on every node: torchrun, slurm, k8s."),
    click.option("--losses", type=InputFileParam(), metavar="losses.csv",
                 help="Also draw the losses of a run (those of plan --execute are in its report)."),
    FILE_OPTIONS,
    KERNELS,
    PRICING,
    JSON_OPTION,
)  # fmt: skip
def export(**flags: Any) -> None:
    """Write a plan for something else to read.

    html: its stages, terms, memory, assumptions, the timeline of its step and the losses of its
    run, in one file. svg, png: terms, stages, their layers and memory. A framework: the files that
    it reads and a launch line; what it cannot say is listed with what that costs.
    """
    from ..export import export_command

    export_command(flags)
