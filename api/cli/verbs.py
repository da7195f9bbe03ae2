"""The verbs of ``plan`` and their flags."""

from __future__ import annotations

from typing import Any

import click

from ...spec.choices import CHECKPOINT_FORMATS, RECOMPUTE_WORDS, SEQUENCE_PARALLELS
from ...spec.limits import MAX_DEGREE, MAX_LAYERS
from ...spec.schedules.stage_order import ALL_KINDS
from ...spec.technique import OFF, TechniqueValue
from ...spec.techniques import TECHNIQUES
from .flags import (
    CLUSTER_TYPE,
    COST,
    EXECUTION,
    JSON_OPTION,
    KERNELS,
    MODEL_TYPE,
    PLAN_FILE,
    PRICE_SOURCE,
    PRICING,
    PROBLEM,
    RUN_FLAGS,
    Decorator,
    compose,
)
from .frameworks.verbs import FILE_OPTIONS, SOURCE, export, import_verb
from .training.verbs import diagnose_verb, size
from .value_types import InputFileParam, NameParam, NumberParam, OutputFileParam, WholeNumberParam
from .what_if_flags import what_if

SHARD_LEVELS = ("zero0", "zero1", "zero2", "zero3", "hsdp:", "hpz:")
"""Completions of ``--shard``."""


def technique_option(technique: TechniqueValue) -> Decorator[Any]:
    """Flag of a technique, taking its words."""
    words = NameParam(technique.metavar, lambda: (OFF, *technique.forms))
    return click.option(technique.flag, type=words, help=technique.help)


DEGREE = WholeNumberParam(most=MAX_DEGREE)

STRATEGY = compose(
    click.option("--tp", type=DEGREE, help="Tensor-parallel degree."),
    click.option("--pp", type=DEGREE, help="Pipeline stages."),
    click.option("--vpp", type=DEGREE, help="Virtual stages on each stage."),
    click.option("--cp", type=DEGREE, help="Context-parallel degree: ranks of a ring."),
    click.option("--ep", type=DEGREE, help="Expert-parallel degree (1)."),
    click.option("--etp", type=DEGREE, help="Expert-tensor-parallel degree (1)."),
    click.option("--dp", type=DEGREE, help="Data-parallel degree; left out: the rest."),
    click.option("--layers-per-stage", type=NameParam("N,N,…", tuple),
                 help="Blocks of each stage, such as 2,3,3; left out: equal parts."),
    click.option("--first-stage-layers", type=WholeNumberParam(least=0, most=MAX_LAYERS),
                 help="Blocks of the first stage; the others share the rest evenly."),
    click.option("--last-stage-layers", type=WholeNumberParam(least=0, most=MAX_LAYERS),
                 help="Blocks of the last stage; likewise."),
    click.option("--sp", type=NameParam("S", lambda: SEQUENCE_PARALLELS),
                 help="Sequence parallelism: none, megatron or ulysses (tp splits heads)."),
    click.option("--shard", type=NameParam("S", lambda: SHARD_LEVELS),
                 help="zero0 to zero3, hsdp or hpz[:LEVEL|:DEGREE], or P/G/O[+hpz:D]."),
    click.option("--schedule", type=NameParam("S", lambda: ALL_KINDS),
                 help="gpipe, 1f1b, interleaved, zero_bubble, zbv or dualpipe."),
    click.option("--micro-batch", type=DEGREE, help="Samples of a micro-batch."),
    click.option("--recompute", type=NameParam("R", lambda: RECOMPUTE_WORDS),
                 help="none, selective (core attention), selective-ops (all but the usual "
                      "results), ops:save=NAME,… (all but these; plan explain lists them) or "
                      "full."),
    *(technique_option(technique) for technique in TECHNIQUES),
)  # fmt: skip


@click.command(
    "simulate", options_metavar="[FLAGS]", short_help="Price one plan, from a file or from flags."
)
@PLAN_FILE
@compose(
    SOURCE,
    PROBLEM,
    STRATEGY,
    KERNELS,
    COST,
    PRICING,
    JSON_OPTION,
    click.option("--trace", type=OutputFileParam(), help="Write the step's timeline for Perfetto."),
)
def simulate(**flags: Any) -> None:
    """Price one plan: a file, or one strategy for all layers given by flags.

    A plan that does not fit is priced too, and what is over is named.
    """
    from .simulate import simulate_command

    simulate_command(flags)


@click.command(
    "explain", options_metavar="[FLAGS]", short_help="Take step time and memory apart into terms."
)
@PLAN_FILE
@compose(
    KERNELS,
    PRICING,
    click.option("--checkpoint", type=InputFileParam(), metavar="DIR",
                 help="Also price saving and loading, by what plan profile --checkpoint measured."),
    JSON_OPTION,
)  # fmt: skip
def explain(**flags: Any) -> None:
    """Take a plan's step time and memory apart into terms that add up."""
    from .simulate import explain_command

    explain_command(flags)


@click.command(
    "compare", options_metavar="[FLAGS]", short_help="Hold two plans against each other, by term."
)
@click.argument("plan_files", metavar="A B", nargs=-1, type=InputFileParam())
@compose(FILE_OPTIONS, KERNELS, PRICING, JSON_OPTION)
def compare(**flags: Any) -> None:
    """Price two plans and say which is faster, what they decide otherwise and which terms differ.

    Seconds are those of a step, or of a million tokens where batches or sequences differ.
    """
    from .compare import compare_command

    compare_command(flags)


@click.command(
    "execute",
    options_metavar="[FLAGS]",
    short_help="Run a plan here; compare measured with predicted.",
)
@PLAN_FILE
@compose(
    EXECUTION,
    JSON_OPTION,
)
def execute(**flags: Any) -> None:
    """Run a plan on this machine and compare what was measured with what was predicted."""
    from .execute import execute_command

    execute_command(flags)


@click.command(
    "profile",
    options_metavar="[FLAGS]",
    short_help="Measure this machine, to price by measurement.",
)
@compose(
    click.option("--cluster", type=NameParam("local[:N]|NxDEVICE", lambda: ("local",)),
                 help="What works at once: local is a rank a core; 1xH200 a GPU of this machine."),
    click.option("--budget", type=NumberParam(unit="seconds", above=4.0, most=300), metavar="S",
                 help="Seconds that it may take (default 120, on GPUs 270; most 300)."),
    click.option("--nvme", type=InputFileParam(), metavar="FOLDER",
                 help="Also read and write a file in a folder on a drive."),
    click.option("--checkpoint", type=InputFileParam(), metavar="FOLDER",
                 help="Also measure a folder for checkpoints: copies, digests, writes, reads."),
    click.option("--fresh", is_flag=True,
                 help="Start over where an earlier measurement was cut short."),
    click.option("--programs", type=WholeNumberParam(most=1000), metavar="N",
                 help="Time N kernels of a model's plans, chosen by clusters, not the grid."),
    click.option("--model", type=MODEL_TYPE,
                 help="With --programs: whose plans (default: those of every preset)."),
    click.option("--dry-run", is_flag=True, help="With --programs: only list them."),
    JSON_OPTION,
)  # fmt: skip
def profile(**flags: Any) -> None:
    """Measure this machine, so that plans for it are priced by measurement."""
    from .profile import profile_command

    profile_command(flags)


@click.command(
    "models",
    options_metavar="[FLAGS]",
    short_help="List models with a name here, or show one with its layers.",
)
@click.argument("name", required=False, type=MODEL_TYPE)
@JSON_OPTION
def models(name: str | None, json_target: str | None) -> None:
    """List the models that have a name here, with sizes and sources.

    With the NAME of one, a file or a folder: its kinds of layers, bytes, linear layers for
    adapters, and what was assumed.
    """
    from .catalogue import models_command

    models_command(name, json_target)


@click.command(
    "clusters",
    options_metavar="[FLAGS]",
    short_help="List devices, nodes, fabrics and instances, or show one.",
)
@click.argument("name", required=False)
@JSON_OPTION
def clusters(name: str | None, json_target: str | None) -> None:
    """List devices, usual nodes, fabrics and clouds' instances, and this machine.

    With the NAME of one, each of its figures, how it is known and its source; with a cluster such
    as 2x8xH100+4x8xA100, its link levels.
    """
    from .catalogue import clusters_command

    clusters_command(name, json_target)


@click.command(
    "doctor",
    options_metavar="[FLAGS]",
    short_help="Say what is measured, learned and assumed of a pair.",
)
@click.argument("model", metavar="[M]", required=False, type=MODEL_TYPE)
@click.argument("cluster", metavar="[C]", required=False, type=CLUSTER_TYPE)
@compose(PRICE_SOURCE, JSON_OPTION)
def doctor(**flags: Any) -> None:
    """Say what a prediction for model M on cluster C would rest on.

    Which layers are planned, simulated and run; how each figure is known; where prices come from;
    the nearest published measured runs. Left out: the embedded model, this machine.
    """
    from .doctor import doctor_command

    doctor_command(flags)


@click.command(
    "validate",
    options_metavar="[FLAGS]",
    short_help="Hold predictions against published measured runs.",
)
@compose(
    click.option("--data", type=InputFileParam(), metavar="CSV",
                 help="A table with the columns of datasets/published/runs.csv or memory.csv."),
    click.option("--calibration", type=NameParam("NAME|none|fit", lambda: ("none", "fit")),
                 help="none: shipped constants only, fitted to no row (default); fit: up to ten "
                      "rows of each device, stack and format, which are then not scored."),
    click.option("--plot", "plot", type=OutputFileParam(), metavar="FILE.svg",
                 help="Draw predicted against measured, a colour a source."),
    JSON_OPTION,
)  # fmt: skip
def validate(**flags: Any) -> None:
    """Price published measured runs, or peaks of memory, and show the errors by source.

    Without --data: the runs that come with the package. Two naive baselines stand beside every
    figure.
    """
    from .validate import validate_command

    validate_command(flags)


@click.command(
    "calibrate", options_metavar="[FLAGS]", short_help="Fit predictions to what a cluster measured."
)
@compose(
    click.option("--data", type=InputFileParam(), metavar="CSV",
                 help="Measured runs of one device, stack and format of products, as "
                      "datasets/published/runs.csv, or peaks of one device and stack, as "
                      "memory.csv; ten rows are fitted, others check it."),
    click.option("--name", type=NameParam("N", tuple), help="What --calibration shall call it."),
    JSON_OPTION,
)  # fmt: skip
def calibrate(**flags: Any) -> None:
    """Fit constants to measured steps, or to peaks of memory, and store them under a name.

    Of steps six factors, on the seconds of products, attention, other kernels, links inside a
    node, links between nodes and the host. Of peaks three constants: factors on states and on
    activations, and bytes of libraries. A name can hold both. A plan keeps its hash.
    """
    from .calibrate import calibrate_command

    calibrate_command(flags)


@click.command("data", options_metavar="[FLAGS]", short_help="Prepare training data by a recipe.")
@click.argument("recipe", metavar="RECIPE.yaml|DIR", required=False, type=InputFileParam())
@compose(
    click.option("--out", type=OutputFileParam(), metavar="DIR",
                 help="Folder of the result, new or empty; a stopped preparation goes on in it."),
    click.option("--jobs", type=WholeNumberParam(most=1024), metavar="N",
                 help="Processes (default 1); the result is the same for any number."),
    click.option("--sample", metavar="P%",
                 help="Share of the texts, such as 1%; near copies are drawn together."),
    click.option("--dry-run", is_flag=True,
                 help="Estimate tokens, documents, bytes and seconds by stage, epochs and lengths "
                      "from a sample (2%); write nothing."),
    JSON_OPTION,
)  # fmt: skip
def data(**flags: Any) -> None:
    """Prepare training data by a recipe, or show a folder of prepared data.

    Documents without duplicates and by rules, mixed by domain, in windows of tokens: what plan
    execute --data DIR trains on.
    """
    from ..recipes.data_command import data_command

    data_command(flags)


@click.command(
    "checkpoint", options_metavar="[FLAGS]", short_help="Inspect or convert a checkpoint."
)
@click.argument("path", metavar="PATH", required=False, type=InputFileParam())
@compose(
    click.option("--to", type=NameParam("F", lambda: CHECKPOINT_FORMATS),
                 help="Convert: to a checkpoint of ours, of torch's, or a transformers folder."),
    click.option("--out", type=OutputFileParam(), metavar="DIR",
                 help="Folder to write, new or empty."),
    click.option("--model", type=MODEL_TYPE,
                 help="Model of the weights, where the checkpoint does not say it."),
    JSON_OPTION,
)  # fmt: skip
def checkpoint(**flags: Any) -> None:
    """Say what a checkpoint of any kind holds and whether it is whole, or convert it.

    Of ours, torch's distributed ones, Megatron-core's torch_dist, and safetensors. Nothing in it is
    run. The exit code is 3 if it is damaged.
    """
    from ..execution.checkpoint_command import checkpoint_command

    checkpoint_command(flags)


@click.command("serve", options_metavar="[FLAGS]", short_help="Answer over HTTP.")
@compose(
    click.option("--host", default="127.0.0.1", metavar="A", show_default=True,
                 help="Address to listen on; others than this machine's own need a token."),
    click.option("--port", type=WholeNumberParam(least=0, most=65535, usual=8642), default=8642,
                 show_default=True, help="Port; 0 takes a free one."),
    click.option("--token-file", type=InputFileParam(), metavar="F",
                 help="Tokens, one a line; every request needs one."),
    click.option("--db", metavar="URL",
                 help="Where jobs are kept: sqlite:///FILE or postgresql://…; by default a file of "
                      "this user."),
    click.option("--allow-execute", is_flag=True,
                 help="Whoever may ask may also run plans on this machine: POST /v1/runs."),
    click.option("--log", default="error", metavar="info|error", show_default=True,
                 help="JSON lines on the error output: of each request and job, or of faults."),
)  # fmt: skip
def serve(
    host: str, port: int, token_file: str | None, db: str | None, allow_execute: bool, log: str
) -> None:
    """Answer planning and simulation requests over HTTP."""
    from ..server.serve import serve as run_server

    run_server(host, port, token_file, db, allow_execute, log)


@click.command("mcp", options_metavar="[FLAGS]", short_help="Answer an agent's calls of tools.")
@click.option("--limit", type=NumberParam(unit="seconds", most=3600), default=600.0, metavar="S",
              show_default=True, help="Seconds of a call; a search then gives its best so far.")
@click.pass_context
def mcp(context: click.Context, limit: float) -> None:
    """Serve the verbs as tools of the Model Context Protocol, over standard input and output.

    For a client that starts this command; it needs the extra mcp. No tool runs a plan.
    """
    from ..agents.mcp_server import serve_tools

    group = context.find_root().command
    assert isinstance(group, click.Group)  # noqa: S101  for the type checker
    serve_tools(group, ("execute", "measure_top", *RUN_FLAGS), limit)


VERBS: dict[str, click.Command] = {
    str(command.name): command
    for command in (
        simulate,
        what_if,
        explain,
        compare,
        import_verb(STRATEGY),
        export,
        diagnose_verb(STRATEGY),
        size,
        execute,
        profile,
        models,
        clusters,
        doctor,
        validate,
        calibrate,
        data,
        checkpoint,
        serve,
        mcp,
    )
}
