"""Coverage of a search, keyed as simulate's flags, and plans left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...spec.choices import SEQUENCE_PARALLELS
from ...spec.cluster.stack_spec import SHARD_KINDS, SPLIT_AXES, StackSpec
from ...spec.limits import MAX_PASSES
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import BlockLayer
from ...spec.recomputation import SELECTIVE_OPS
from .layer_splits import MOST_TOKENS, least_tokens

MAX_UNEVEN_LAYERS = 16
"""Most layers of a model whose virtual stages have every boundary."""

if TYPE_CHECKING:
    from ...spec.strategy import LayerStrategy
    from .pipeline_shape import PipelineShape
    from .search_space import Request, SearchSpace


AXES = ("tp", "cp", "ep", "etp", "dp", "sp", "shard", "recompute", "micro_batch")


def describe(space: SearchSpace, shapes: list[PipelineShape]) -> dict[str, list[Any]]:
    """Axes keyed as simulate's flags, with values in plans of ``shapes``.

    ``dp`` is that of the first layer and of blocks, ``micro_batch`` that of the first layer: the
    layers covered by their pins.
    """
    batch = space.request.workload.global_batch
    axes: dict[str, set[Any]] = {
        "pp": {s.stages for s in shapes},
        "vpp": {s.chunks for s in shapes},
        "schedule": {s.kind for s in shapes},
        **{axis: set() for axis in (*AXES, *space.request.techniques.names)},
    }
    seen: set[int] = set()
    for ranks, samples in {(s.ranks, batch // s.microbatches) for s in shapes}:
        for layer_class, index in space.first_of_class.items():
            for dp in space.batch_parts(layer_class, ranks, samples):
                if index == 0:
                    axes["micro_batch"].add(samples // dp)
                strategies = space.sharded(layer_class, ranks, dp, samples // dp)
                if id(strategies) not in seen:  # shared between micro-batches
                    seen.add(id(strategies))
                    _add_strategies(axes, space, layer_class, strategies, ranks, dp)
    for name, words in space.techniques.dominated.words.items():
        axes[name] |= words
    return {axis: sorted(values) for axis, values in sorted(axes.items())}


def _add_strategies(
    axes: dict[str, set[Any]],
    space: SearchSpace,
    layer_class: int,
    strategies: tuple[LayerStrategy, ...],
    ranks: int,
    dp: int,
) -> None:
    """Add a layer class's strategy values on so many ranks and replicas."""
    index = space.first_of_class[layer_class]
    for axis in ("tp", "cp", "ep", "etp", "recompute"):
        axes[axis] |= {getattr(strategy, axis) for strategy in strategies}
    axes["sp"] |= {strategy.sequence_parallel for strategy in strategies}
    shards = {(strategy.shard, strategy.weight_split) for strategy in strategies}
    axes["shard"] |= {shard.level_name(ranks // split) for shard, split in shards}
    for technique, _ in space.request.techniques.plannable:
        if technique.program is None:
            axes[technique.name] |= {technique.text_of(strategy) for strategy in strategies}
        else:
            axes[technique.name].add(technique.text_in_program(space.request.program))
    if strategies and (index == 0 or isinstance(space.layers[index], BlockLayer)):
        axes["dp"].add(dp)


def left_out(request: Request, too_long: bool, has_solver: bool) -> list[dict[str, str]]:
    """Plans outside the space or not searched, each with its reason.

    Args:
        request: of the space.
        too_long: True if pipelines of too many passes were refused.
        has_solver: True if the linear relaxation can be solved.
    """
    least = least_tokens(request.workload)
    tokens = [
        {
            "what": f"cp and Ulysses that leave a rank fewer than {least} tokens",
            "why": "a rule for what saves the activations of long sequences; pin them to search",
        },
        {
            "what": f"micro-batches of several samples and over {MOST_TOKENS:,} tokens a replica",
            "why": "a rule: products that large gain nothing from more; pin micro_batch to search",
        },
    ]
    rows = [
        *(tokens if request.token_rules else ()),
        {
            "what": "shard degrees that are no level",
            "why": "searched only where they are pinned; or simulate them",
        },
    ]
    stack, pinned = request.stack, {pin.key for pin in request.pins}
    untried = stack.recompute_by_operation and SELECTIVE_OPS not in stack.recompute
    if untried and "recompute" not in pinned:
        why = "searched only where it is pinned: selective-ops, or ops:save=NAMES"
        rows.append({"what": "recompute by operation", "why": why})
    if any(experts_of(layer) for layer in request.model.kinds()):
        why = "a rule: what all ranks hold is split like other weights or not at all; pin to search"
        rows.append({"what": "etp other than 1, or tp where ep is 1", "why": why})
    if len(request.model.layers()) > MAX_UNEVEN_LAYERS:
        why = "a rule for models of more layers than can be cut in every way: one cut, all counted"
        rows.append({"what": "virtual stages cut otherwise than evenly", "why": why})
    if request.single_fill:
        why = "largest-batch: a pipeline of p stages is filled once, by at most p micro-batches"
        rows.append({"what": "gradient accumulation", "why": why})
    if not has_solver:
        why = "the solver highspy is not installed, so that the gap is larger (pip install highspy)"
        rows.append({"what": "the bound of the linear relaxation", "why": why})
    if too_long:
        rows.append(
            {
                "what": f"pipelines of more than {MAX_PASSES:,} passes in a step",
                "why": "too many to simulate: fewer micro-batches, stages or virtual stages",
            }
        )
    rows += _techniques_left_out(request)
    rows += _stack_left_out(request.stack)
    return rows + [{"what": f"all but {p.text}", "why": "pinned"} for p in request.pins]


def _stack_left_out(stack: StackSpec) -> list[dict[str, str]]:
    """Plans that the stack cannot run."""
    limits, rows = stack.limits, []
    if limits.one_strategy:
        why = f"the stack {stack.name} has one for all layers, and stages of one width"
        rows.append({"what": "plans of several strategies", "why": why})
    if limits.layer_cut != "any":
        smaller = ", the first and the last perhaps smaller" if limits.layer_cut == "ends" else ""
        why = f"planned for the stack {stack.name}: stages of equal numbers of layers{smaller}"
        rows.append({"what": "other cuts into stages", "why": why})
    lacks: list[str] = [axis for axis in SPLIT_AXES if axis not in limits.axes]
    lacks += [kind for kind in SHARD_KINDS if kind not in limits.shard]
    lacks += [word for word in SEQUENCE_PARALLELS if word not in limits.sequence_parallel]
    if lacks:
        why = f"the stack {stack.name} does not have them"
        rows.append({"what": ", ".join(lacks), "why": why})
    return rows


def _techniques_left_out(request: Request) -> list[dict[str, str]]:
    """Techniques tried only on request, and lossy ones not allowed."""
    rows = []
    for value, choice in request.techniques.plannable:
        if any(pin.key == value.name for pin in request.pins):
            continue
        if why := choice.untried_reason(request.cluster):
            what = f"{value.name} {' and '.join(value.forms)}"
            rows.append({"what": what, "why": why})
        else:
            lossy = [one for one in value.samples if not request.techniques.allows(value, one)]
            if lossy:
                what = f"{value.name} {' and '.join(value.word_of(one) for one in lossy)}"
                why = f"lossy: {value.lossy(lossy[0])}; --allow {value.name} to search"
                rows.append({"what": what, "why": why})
    return rows
