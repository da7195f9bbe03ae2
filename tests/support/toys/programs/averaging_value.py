"""averaged_weights, a program's technique that only tests have.

Replicas of a layer do not sum their gradients: each steps alone, and once in so many steps all move
towards the mean of their weights (McMahan et al., arXiv:1602.05629, algorithm 1, whose clients they
are; with a pull below 1 as Zhang et al., arXiv:1412.6651, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.model_spec import Layer, ModelSpec
from shardwright.spec.number_family import NumberFamily
from shardwright.spec.parallel.rank_groups import RankGroup, replica_group
from shardwright.spec.program_rules import ProgramRules, State
from shardwright.spec.schedules.stage_order import SPLIT_KINDS, ScheduleKind
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique import Lossy, TechniqueValue
from shardwright.spec.workload.workload import Workload

NAME = "averaged_weights"
WORDS = ("2", "4")


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragedWeights:
    """Once in ``every`` steps weights move by ``pull`` of the way to their mean."""

    every: Annotated[int, Field(ge=1, le=64)] = 2
    pull: Annotated[float, Field(gt=0, le=1)] = 1.0


def violation(value: AveragedWeights, model: ModelSpec, workload: Workload) -> str | None:
    """A weight of two layers would be averaged twice."""
    return "a shared table has one average" if model.tie_embeddings else None


def layer_violation(
    value: AveragedWeights, layer: Layer, strategy: LayerStrategy, stage_ranks: int
) -> str | None:
    """Ranks of a ring have one set of weights, and experts have other replicas."""
    if strategy.cp > 1:
        return "ranks of a ring sum their gradients"
    return None if strategy.ep == 1 else "experts are on other ranks than what is averaged"


def pipeline_violation(
    value: AveragedWeights, kind: ScheduleKind, stages: int, chunks: int, micro_batches: int
) -> str | None:
    """Some refusal, for tests."""
    return "replicas do not average beside split backwards" if kind in SPLIT_KINDS else None


def stack_violation(value: AveragedWeights, stack: StackSpec) -> str | None:
    """Weights must be where gradients are."""
    if stack.state_layout == "fsdp2":
        return None
    return f"the stack {stack.name} has weights in buffers"


def groups(
    value: AveragedWeights, strategy: LayerStrategy, stage_ranks: int
) -> tuple[RankGroup, ...]:
    """Replicas of the layer's states."""
    return (replica_group(strategy, stage_ranks),)


def claims(value: AveragedWeights) -> frozenset[State]:
    """Sums of gradients, and weights that differ between replicas."""
    return frozenset({"gradients", "parameters"})


def reduced_ranks(value: AveragedWeights, strategy: LayerStrategy, stage_ranks: int) -> int:
    """Those that share one copy of the weights."""
    return strategy.weight_split * strategy.shard.optimizer


def word_of(value: AveragedWeights) -> str:
    """``2`` or ``4``, or with the pull."""
    return str(value.every) if value.pull == 1 else FAMILY.word_of(value.pull)


def from_word(word: str) -> Any:
    """The value of ``2`` or ``4``."""
    return AveragedWeights(every=int(word)) if word in WORDS else None


FAMILY = NumberFamily(
    word="pull",
    low=0.25,
    high=1.0,
    make=lambda pull: AveragedWeights(pull=pull),
    number_of=lambda value: value.pull if value.every == 2 else None,
)
TECHNIQUE = TechniqueValue(
    name=NAME,
    value=AveragedWeights,
    program=ProgramRules(
        violation=violation,
        layer_violation=layer_violation,
        pipeline_violation=pipeline_violation,
        stack_violation=stack_violation,
        groups=groups,
        claims=claims,
        reduced_ranks=reduced_ranks,
    ),
    words=WORDS,
    word_of=word_of,
    from_word=from_word,
    families=(FAMILY,),
    help="Steps after which replicas average: none, 2, 4 or pull:SHARE.",
    metavar="STEPS",
    lossy=lambda value: Lossy(bound=value.every, of="weights of other replicas", unit="steps"),
)
