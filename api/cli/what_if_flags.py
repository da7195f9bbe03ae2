"""The verb ``what-if``: its flags, and all keys in its help."""

from __future__ import annotations

from typing import Any

import click

from ...spec.inputs.what_if_keys import keys_text
from .flags import CLUSTER_TYPE, JSON_OPTION, KERNELS, PLAN_FILE, PRICING, compose
from .frameworks.verbs import FILE_OPTIONS
from .value_types import NameParam, NumberParam, OutputFileParam


def _key_list() -> str:
    rows = keys_text()
    width = max(len(name) for name, _ in rows)
    lines = "\n".join(f"  {name.ljust(width)}  {meaning}" for name, meaning in rows)
    return f"\b\nKeys, each with an example:\n{lines}\n\n\b\n{VALUES_TEXT}"


VALUES_TEXT = """Values: with a unit (40GiB, 50GB/s, 400Gbit/s, 989TFLOP/s, 5us), plain counts and
words, or factors on what there is (2x, 0.5x, +10%, -10%)."""


@click.command(
    "what-if",
    options_metavar="[FLAGS]",
    short_help="Change something: the same plan, re-planned.",
    epilog=_key_list(),
)
@PLAN_FILE
@compose(
    click.option("--set", "sets", multiple=True, metavar="KEY=VALUE",
                 help="Change a key, such as inter_node.bandwidth=2x; repeatable."),
    click.option("--sweep", multiple=True, metavar="KEY=a,b,c",
                 help="A row for each value of one key, beside what --set changes."),
    click.option("--add", type=CLUSTER_TYPE, help="Join these devices to those of the plan."),
    click.option("--scale", type=NameParam("batch|fixed", lambda: ("batch", "fixed")),
                 help="batch: the global batch grows with the devices; fixed (default)."),
    FILE_OPTIONS,
    KERNELS,
    PRICING,
    click.option("--deadline", type=NumberParam(unit="seconds", most=1e6), metavar="S",
                 help="Answer after about S seconds with the best plans so far."),
    click.option("--plot", type=OutputFileParam(), metavar="FILE.svg",
                 help="Draw it, as .svg or .html."),
    JSON_OPTION,
)  # fmt: skip
def what_if(**flags: Any) -> None:
    """Price a plan in a changed setting, as it is and planned anew, and say which term moved.

    A plan that does not fit is priced too, and what is over is named. Re-planning searches with
    nothing pinned; where it finds nothing faster, the plan is kept.
    """
    from .what_if import what_if_command

    what_if_command(flags)
