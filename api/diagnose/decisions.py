"""Decisions of a uniform plan, a field an axis, and the plan of other decisions.

The neighbors of a run are its plan with one decision changed, in the cut of layers that its stack
has; data parallelism takes the rest of the devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from ...costmodel.simulation.simulator import max_microbatches
from ...datasets.catalogue.stack import stack as stack_named
from ...datasets.catalogue.stack_settings import parse_stack, settings_of, stack_text
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.model.model_spec import BlockLayer
from ...spec.numbers import divisors
from ...spec.plan.layer_cuts import cuts
from ...spec.plan.plan import Plan, Program, Schedule, Stage
from ...spec.rules.plan_rules import schedule_violation
from ...spec.rules.stack_limits import stack_plan_violations
from ...spec.schedules.stage_order import V_KINDS, ScheduleKind, chunk_position
from ...spec.strategy import LayerStrategy, Sharding
from ..frameworks.exportable import ExportablePlan
from ..frameworks.framework import Framework
from ..planning.stage_placement import place_stages
from ..planning.uniform_chunks import layer_chunks
from .flags import flag_changes

MOST_CUTS = 3
MOST_CHUNKS = 4
"""Virtual stages tried on a stage."""
LONG_SEQUENCE = 16_384
"""Tokens of a sample from which context parallelism is tried."""
OTHER_MATHEMATICS = ("dropout", "fp8_gather")
"""Settings that change what is computed, and are not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDecisions:
    """Decisions of a plan of one strategy; ``sizes``: layers of its chunks, None if open."""

    strategy: LayerStrategy
    shard: str
    pp: int
    schedule: tuple[ScheduleKind, int]
    micro_batch: int
    stack: str
    sizes: tuple[int, ...] | None

    def words(self) -> dict[str, str]:
        """Each axis in words."""
        kind, vpp = self.schedule
        strategy = self.strategy
        return {
            "tp": str(strategy.tp),
            "pp": str(self.pp),
            "cp": str(strategy.cp),
            "ep": str(strategy.ep),
            "sp": strategy.sequence_parallel if strategy.tp > 1 else "none",
            "shard": self.shard,
            "schedule": kind if vpp == 1 else f"{kind} with vpp {vpp}",
            "micro-batch": str(self.micro_batch),
            "recompute": strategy.recompute,
            "techniques": ", ".join(sorted(strategy.techniques)) or "none",
            "stack": self.stack.partition(":")[2] or "as usual",
        }


class Neighbors:
    """Plans near one, by axis.

    Args:
        plan: of one device group, in stages of one width.
        stack: that prices it.
        framework: to whose files plans are kept; None: to the stack's limits alone.
    """

    def __init__(self, plan: ExportablePlan, stack: StackSpec, framework: Framework | None) -> None:
        self._plan, self._stack, self._framework = plan, stack, framework
        self._stacks = {stack.name: stack}
        self.base = RunDecisions(
            strategy=plan.strategy,
            shard=plan.shard,
            pp=plan.pp,
            schedule=(plan.plan.program.schedule.kind, plan.vpp),
            micro_batch=plan.micro_batch,
            stack=stack.name,
            sizes=plan.chunk_sizes,
        )

    def stack_of(self, decisions: RunDecisions) -> StackSpec:
        """The stack that prices decisions."""
        if decisions.stack not in self._stacks:
            named = stack_named(decisions.stack)
            self._stacks[decisions.stack] = replace(named, attention=self._stack.attention)
        return self._stacks[decisions.stack]

    def axes(self, near: RunDecisions) -> Mapping[str, list[RunDecisions]]:
        """Other values of every axis of decisions."""
        strategy = near.strategy
        found = {
            "tp": self._widths(near, "tp"),
            "pp": [
                replace(near, pp=n, schedule=schedule if n > 1 else ("1f1b", 1), sizes=None)
                for n in self._stages()
                if n != near.pp
                for schedule in self._usual_schedules()
            ],
            "cp": self._widths(near, "cp"),
            "ep": self._experts(near),
            "sp": [
                replace(near, strategy=replace(strategy, sequence_parallel=word))
                for word in self._stack.limits.sequence_parallel
                if strategy.tp > 1
            ],
            "shard": [replace(near, shard=word) for word in self._shards(near)],
            "schedule": self._schedules(near),
            "micro-batch": [replace(near, micro_batch=n) for n in self._micro_batches(near)],
            "recompute": [
                replace(near, strategy=replace(strategy, recompute=word))
                for word in self._recompute_words()
            ],
            "techniques": [replace(near, strategy=replace(strategy, techniques={}))],
            "stack": self._settings(near),
        }
        return {
            name: [item for item in dict.fromkeys(values) if item != near]
            for name, values in found.items()
        }

    def plan(self, decisions: RunDecisions) -> Plan | None:
        """The legal plan of decisions, or None."""
        stack = self.stack_of(decisions)
        narrow = stack if self._framework is None else self._framework.narrow(stack)
        for made in self._plans(decisions, stack):
            if not made.check() and not stack_plan_violations(made, narrow):
                return made
        return None

    def _widths(self, near: RunDecisions, axis: str) -> list[RunDecisions]:
        """Other degrees of tp or cp; sequence parallelism goes with tp where the stack has it."""
        strategy, cluster = near.strategy, self._plan.plan.cluster
        inner = cluster.groups[0].devices_per_node
        if axis == "cp":
            is_long = self._plan.workload.seq_len >= LONG_SEQUENCE or strategy.cp > 1
            degrees = divisors(inner) if is_long else [1]
            return [replace(near, strategy=replace(strategy, cp=n)) for n in degrees]
        words = self._stack.limits.sequence_parallel
        usual = "megatron" if "megatron" in words else words[0] if words else "none"
        word = strategy.sequence_parallel if strategy.tp > 1 else usual
        return [
            replace(
                near,
                strategy=replace(
                    strategy,
                    tp=n,
                    etp=min(strategy.etp, n),
                    sequence_parallel=word if n > 1 else "none",
                ),
            )
            for n in divisors(inner)
        ]

    def _stages(self) -> list[int]:
        """Stages of which the layers make chunks."""
        devices, blocks = self._plan.devices, self._plan.model.block_count
        return [n for n in divisors(devices) if n <= min(blocks, 64)]

    def _usual_schedules(self) -> list[tuple[ScheduleKind, int]]:
        usual: tuple[tuple[ScheduleKind, int], ...] = (("1f1b", 1), ("interleaved", 2))
        return [pair for pair in usual if pair[0] in self._stack.schedules]

    def _experts(self, near: RunDecisions) -> list[RunDecisions]:
        if not self._plan.has_experts:
            return []
        inner = self._plan.plan.cluster.groups[0].devices_per_node
        degrees = {n for n in divisors(self._plan.devices) if n <= 8 * inner}
        return [replace(near, strategy=replace(near.strategy, ep=n)) for n in sorted(degrees)]

    def _shards(self, near: RunDecisions) -> list[str]:
        inner = self._plan.plan.cluster.groups[0].devices_per_node
        return ["zero0", "zero1", "zero2", "zero3", f"hsdp:{max(1, inner // near.strategy.width)}"]

    def _schedules(self, near: RunDecisions) -> list[RunDecisions]:
        if near.pp == 1:
            return []
        pairs: list[tuple[ScheduleKind, int]] = []
        for kind in self._stack.schedules:
            if kind in V_KINDS:
                pairs.append((kind, 2))
            elif kind == "interleaved":
                pairs += [(kind, n) for n in range(2, MOST_CHUNKS + 1)]
            else:
                pairs.append((kind, 1))
        return [replace(near, schedule=pair, sizes=None) for pair in pairs]

    def _micro_batches(self, near: RunDecisions) -> list[int]:
        ranks = self._plan.devices // near.pp
        if ranks % near.strategy.width:
            return []
        share = self._plan.workload.global_batch // near.strategy.data_parallel(ranks)
        return [n for n in (1, 2, 4, 8, 16, 32) if share and share % n == 0]

    def _recompute_words(self) -> list[str]:
        words: list[str] = list(self._stack.recompute)
        return [*words, "selective-ops"] if self._stack.recompute_by_operation else words

    def _settings(self, near: RunDecisions) -> list[RunDecisions]:
        """Each setting of the stack at another value that computes the same and can be said."""
        base, settings = parse_stack(near.stack, "--stack")
        texts = [stack_text(base, {**settings, key: value}) for key, value in self._sayable]
        names = {stack_named(text).name for text in texts}
        return [replace(near, stack=name) for name in sorted(names)]

    @cached_property
    def _sayable(self) -> list[tuple[str, str]]:
        """Settings and values that the framework's files, where it has any, can say."""
        base, settings = parse_stack(self.base.stack, "--stack")
        pairs = [
            (key, value)
            for key, values in settings_of(base).items()
            if key not in OTHER_MATHEMATICS
            for value in values
        ]
        if self._framework is None or self._framework.write is None:
            return pairs
        plan, said = self._plan.plan, []
        for key, value in pairs:
            name = stack_named(stack_text(base, {**settings, key: value})).name
            stack = self.stack_of(replace(self.base, stack=name))
            is_said = flag_changes(self._framework, (plan, self._stack), (plan, stack))
            if is_said or name == self.base.stack:
                said.append((key, value))
        return said

    def _plans(self, decisions: RunDecisions, stack: StackSpec) -> Iterator[Plan]:
        """Plans of decisions, in each cut that the stack has if the cut is open."""
        strategy, devices = decisions.strategy, self._plan.devices
        ranks = devices // decisions.pp
        if devices % decisions.pp or ranks % strategy.width:
            return
        samples = decisions.micro_batch * strategy.data_parallel(ranks)
        microbatches, rest = divmod(self._plan.workload.global_batch, samples)
        kind, vpp = decisions.schedule
        if rest or not 0 < microbatches <= max_microbatches(decisions.pp, vpp, kind):
            return
        if schedule_violation(kind, decisions.pp, vpp, microbatches, len(self._plan.layers)):
            return
        replicas = strategy.state_ranks(ranks)
        try:
            shard = Sharding.from_text(decisions.shard, replicas) if replicas > 1 else Sharding()
        except InputError:
            return
        strategy = replace(strategy, shard=shard)
        schedule = Schedule(kind=kind, micro_batch=decisions.micro_batch, microbatches=microbatches)
        for sizes in self._sizes(decisions, stack):
            if made := self._built(strategy, schedule, decisions, sizes):
                yield made

    def _sizes(self, decisions: RunDecisions, stack: StackSpec) -> list[tuple[int, ...]]:
        if decisions.sizes is not None:
            return [decisions.sizes]
        kind, vpp = decisions.schedule
        is_block = [isinstance(layer, BlockLayer) for layer in self._plan.layers]
        rule = stack.limits.layer_cut
        found = list(cuts(rule, is_block, kind, decisions.pp, vpp))[:MOST_CUTS]
        return [tuple(b - a for a, b in pairwise(cut)) for cut in found]

    def _built(
        self,
        strategy: LayerStrategy,
        schedule: Schedule,
        decisions: RunDecisions,
        sizes: tuple[int, ...],
    ) -> Plan | None:
        plan, pp, vpp = self._plan, decisions.pp, decisions.schedule[1]
        try:
            chunks = layer_chunks(plan.model, sizes, pp * vpp, strategy)
            placed = place_stages(plan.plan.cluster, pp, plan.devices // pp)[:pp]
        except InputError:
            return None
        stages = tuple(
            Stage(
                devices=(placed[number],),
                virtual_stages=tuple(
                    chunks[chunk_position(schedule.kind, number, v, pp)] for v in range(vpp)
                ),
            )
            for number in range(pp)
        )
        techniques = plan.plan.program.techniques
        program = Program(stages=stages, schedule=schedule, techniques=techniques)
        return replace(plan.plan, programs=(program,))
