"""What a search covered, in simulate's words, and what it left out with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...costmodel.simulation.simulator import MAX_PASSES
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import BlockLayer
from .layer_splits import MOST_TOKENS, least_tokens

MAX_UNEVEN_LAYERS = 16
"""Layers of a model whose virtual stages are cut in every way."""

if TYPE_CHECKING:
    from .pipeline_shape import PipelineShape
    from .search_space import Request, SearchSpace


AXES = ("tp", "cp", "ep", "etp", "dp", "sp", "shard", "recompute", "micro_batch")


def describe(space: SearchSpace, shapes: list[PipelineShape]) -> dict[str, list[Any]]:
    """Axis to the values that some plan of ``shapes`` has, keyed as simulate's flags.

    ``dp`` is that of the first layer and of blocks, ``micro_batch`` that of the first layer:
    the layers that pins of them speak of.
    """
    batch = space.request.workload.global_batch
    found: dict[str, set[Any]] = {
        "pp": {s.stages for s in shapes},
        "vpp": {s.chunks for s in shapes},
        "schedule": {s.kind for s in shapes},
        **{axis: set() for axis in (*AXES, *space.request.techniques.names)},
    }
    seen: set[tuple[int, int, int]] = set()
    for ranks, samples in {(s.ranks, batch // s.microbatches) for s in shapes}:
        for kind, index in space.first_of_class.items():
            for dp in space.batch_parts(kind, ranks, samples):
                if index == 0:
                    found["micro_batch"].add(samples // dp)
                if (kind, ranks, dp) not in seen:  # shared between micro-batches
                    seen.add((kind, ranks, dp))
                    _note(found, space, kind, ranks, dp)
    return {axis: sorted(values) for axis, values in sorted(found.items())}


def _note(found: dict[str, set[Any]], space: SearchSpace, kind: int, ranks: int, dp: int) -> None:
    """The values of the strategies of a layer kind on so many ranks in dp parts of the batch."""
    index, strategies = space.first_of_class[kind], space.sharded(kind, ranks, dp)
    for axis in ("tp", "cp", "ep", "etp", "recompute"):
        found[axis] |= {getattr(strategy, axis) for strategy in strategies}
    found["sp"] |= {strategy.sequence_parallel for strategy in strategies}
    shards = {(strategy.shard, strategy.weight_split) for strategy in strategies}
    found["shard"] |= {shard.level_name(ranks // split) for shard, split in shards}
    for technique, _ in space.request.techniques.plannable:
        found[technique.name] |= {technique.text_of(strategy) for strategy in strategies}
    if strategies and (index == 0 or isinstance(space.layers[index], BlockLayer)):
        found["dp"].add(dp)


def left_out(request: Request, too_long: bool, has_solver: bool) -> list[dict[str, str]]:
    """What no plan of the space has or no search looks for, and the rule or reason.

    Args:
        request: what is asked.
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
    found = [
        *(tokens if request.token_rules else ()),
        {
            "what": "shard degrees that are no level",
            "why": "searched only where they are pinned; or simulate them",
        },
    ]
    if any(experts_of(layer) for layer in request.model.kinds()):
        why = "a rule: what all ranks hold is split like other weights or not at all; pin to search"
        found.append({"what": "etp other than 1, or tp where ep is 1", "why": why})
    if len(request.model.layers()) > MAX_UNEVEN_LAYERS:
        why = "a rule for models of more layers than can be cut in every way: one cut, all counted"
        found.append({"what": "virtual stages cut otherwise than evenly", "why": why})
    if request.single_fill:
        why = "largest-batch: a pipeline of p stages is filled once, by at most p micro-batches"
        found.append({"what": "gradient accumulation", "why": why})
    if not has_solver:
        why = "the solver highspy is not installed, so that the gap is larger (pip install highspy)"
        found.append({"what": "the bound of the linear relaxation", "why": why})
    if too_long:
        found.append(
            {
                "what": f"pipelines of more than {MAX_PASSES:,} passes in a step",
                "why": "too many to simulate: fewer micro-batches, stages or virtual stages",
            }
        )
    found += _techniques_left_out(request)
    if request.stack.state_layout == "contiguous":
        why = f"the stack {request.stack.name} shards optimizer states only"
        found.append({"what": "zero2, zero3, hsdp", "why": why})
    return found + [{"what": f"all but {p.text}", "why": "pinned"} for p in request.pins]


def _techniques_left_out(request: Request) -> list[dict[str, str]]:
    """Techniques that are tried only where they are asked for, and lossy ones not allowed."""
    found = []
    for value, choice in request.techniques.plannable:
        if any(pin.key == value.name for pin in request.pins):
            continue
        if why := choice.untried_reason(request.cluster):
            what = f"{value.name} {' and '.join(value.words)}"
            found.append({"what": what, "why": why})
        elif value.name not in request.techniques.allowed:
            named = (value.from_word(word) for word in value.words)
            lossy = [own for own in named if value.lossy(own) is not None]
            if lossy:
                what = f"{value.name} {' and '.join(value.word_of(own) for own in lossy)}"
                why = f"lossy: {value.lossy(lossy[0])}; --allow {value.name} to search"
                found.append({"what": what, "why": why})
    return found
