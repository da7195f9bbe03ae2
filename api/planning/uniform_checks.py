"""Rules of a uniform plan: offending flag and nearest legal value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...planner.solve.problem import Problem
from ...planner.space.program_options import device_need
from ...planner.technique import TechniqueChoice
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.model.towers import layer_contexts
from ...spec.plan.plan import Plan
from ...spec.plan.uniform_strategy import applicable_strategy
from ...spec.program_values import (
    program_layer_violation,
    program_pipeline_violation,
    program_stack_violation,
    program_violation,
)
from ...spec.rules.plan_rules import layer_violation, stack_violation
from ...spec.strategy import LayerStrategy, Sharding
from ...spec.technique import OFF, TechniqueValue, Values
from ...spec.technique_values import (
    technique_token_violation,
    technique_violation,
    with_word,
)


def check_uniform_plan(problem: Problem, strategy: LayerStrategy, ranks: int, plan: Plan) -> None:
    """Refuse a uniform plan that breaks a rule, naming the flag.

    Raises:
        InputError: a rule is broken.
    """
    techniques = problem.techniques
    for value, _ in techniques.plannable:
        if reason := value.stack_violation(strategy, problem.stack):
            raise _unsupported_value(value, strategy, problem.stack, reason)
    if reason := stack_violation(strategy, problem.stack, techniques.values):
        raise _stack_error(problem, strategy, ranks, reason)
    samples = plan.program.micro_batch_samples
    for own, reason in _own_violations(problem, plan, ranks, samples):
        raise _layer_error(problem, own, ranks, reason)
    for value, choice in techniques.plannable:
        if reason := _technique_violation(problem, strategy, ranks, value, choice):
            allowed = f"what these layers can be ({reason})"
            raise InputError(value.flag, value.text_of(strategy), allowed, OFF)
    _check_program_values(problem, plan)
    if violations := plan.check(techniques.values):
        raise InputError(violations[0].path, violations[0].message, "a legal plan")


def _check_program_values(problem: Problem, plan: Plan) -> None:
    """Refuse the first value of the program that breaks a rule, naming its flag.

    Raises:
        InputError: a rule is broken.
    """
    values, known = plan.program.techniques, problem.techniques.values
    for technique, choice in problem.techniques.plannable:
        if (value := technique.in_program(values)) is None:
            continue
        need = device_need(choice, value, problem.cluster)
        reason = f"it needs {need}" if need else _program_reason(plan, problem, known)
        if reason:
            word = technique.text_in_program(values)
            raise InputError(technique.flag, word, f"what the program can be ({reason})", OFF)


def _program_reason(plan: Plan, problem: Problem, known: Values) -> str | None:
    """Rule that the program's values break in a plan, or None."""
    program, values = plan.program, plan.program.techniques
    shape = len(program.stages), program.chunks_per_stage, program.schedule.microbatches
    reasons = [
        program_violation(values, problem.model, problem.workload, known),
        program_pipeline_violation(values, program.schedule.kind, *shape, known),
        program_stack_violation(values, problem.stack, known),
    ]
    layers = zip(problem.model.layers(), program.layer_strategies(), strict=True)
    ranks, pairs = program.stages[0].device_count, dict.fromkeys(layers)
    reasons += [program_layer_violation(values, *pair, ranks, known) for pair in pairs]
    return next((reason for reason in reasons if reason), None)


def _unsupported_value(
    value: TechniqueValue, strategy: LayerStrategy, stack: StackSpec, reason: str
) -> InputError:
    others = (with_word(strategy, value, word, value.name) for word in value.words)
    legal = [value.text_of(s) for s in others if value.stack_violation(s, stack) is None]
    allowed = f"{' or '.join([OFF, *legal])} ({reason})"
    return InputError(value.flag, value.text_of(strategy), allowed, OFF)


def _technique_violation(
    problem: Problem,
    strategy: LayerStrategy,
    ranks: int,
    value: TechniqueValue,
    choice: TechniqueChoice,
) -> str | None:
    """Layer or device rule that a technique's value breaks, or None."""
    dtype, chosen = problem.workload.dtype, value.of(strategy)
    if chosen is None:
        return None
    for layer in problem.model.kinds():
        applied = applicable_strategy(layer, strategy, problem.techniques.values)
        if reason := technique_violation(layer, applied, ranks, dtype, (value,)):
            return reason
        tokens = problem.workload.seq_len
        if reason := technique_token_violation(applied, tokens, (value,)):
            return reason
    devices = (group.device for group in problem.cluster.groups)
    reasons = (choice.device_reason(chosen, device) for device in devices)
    return next((f"it needs {reason}" for reason in reasons if reason), None)


def _stack_error(problem: Problem, strategy: LayerStrategy, ranks: int, reason: str) -> InputError:
    if "flash attention" in reason:
        return InputError("--attention", problem.stack.attention, f"flash ({reason})", "flash")
    if "recomputes" in reason:
        allowed = ", ".join(problem.stack.recompute)
        return InputError("--recompute", strategy.recompute, f"{allowed} ({reason})", "none")
    shard = strategy.shard.level_name(strategy.state_ranks(ranks))
    return InputError("--shard", shard, f"zero0 or zero1 ({reason})", "zero1")


def _layer_error(problem: Problem, strategy: LayerStrategy, ranks: int, reason: str) -> InputError:
    if reason.startswith("shard"):
        shard = strategy.shard.level_name(strategy.state_ranks(ranks))
        return InputError("--shard", shard, f"a level or nested degrees ({reason})", "zero1")
    if reason.startswith("ulysses"):
        other = "none" if strategy.tp == 1 else "megatron"
        return InputError("--sp", "ulysses", f"none or megatron ({reason})", other)
    if "need sequence parallelism" in reason:
        return InputError("--sp", "none", f"megatron ({reason})", "megatron")
    name = next((name for name in ("cp", "ep", "etp") if reason.startswith(f"{name} ")), "tp")
    allowed = f"a degree that splits every layer ({reason})"
    return InputError(
        f"--{name}", getattr(strategy, name), allowed, _nearest(problem, strategy, ranks, name)
    )


def _own_violations(
    problem: Problem, plan: Plan, ranks: int, samples: int
) -> Iterator[tuple[LayerStrategy, str]]:
    """Strategies of layers that are not legal there, and why."""
    layers = problem.model.layers()
    contexts = layer_contexts(problem.model, problem.workload.seq_len)
    taken = plan.program.layer_strategies()
    every = zip(layers, contexts, taken, strict=True)
    classes = dict.fromkeys((layer, context.tokens, own) for layer, context, own in every)
    for layer, tokens, own in classes:
        if reason := layer_violation(layer, own, ranks, samples, tokens):
            yield own, reason


def _layers_violation(
    problem: Problem, strategy: LayerStrategy, ranks: int, samples: int
) -> str | None:
    model = problem.model
    contexts = layer_contexts(model, problem.workload.seq_len)
    classes = dict.fromkeys((x, c.tokens) for x, c in zip(model.layers(), contexts, strict=True))
    for layer, tokens in classes:
        applied = applicable_strategy(layer, strategy, problem.techniques.values)
        if reason := layer_violation(layer, applied, ranks, samples, tokens):
            return reason
    return None


def _nearest(problem: Problem, strategy: LayerStrategy, ranks: int, name: str) -> int:
    """Legal degree nearest to the typed one; 1 is always legal."""
    typed, legal = getattr(strategy, name), [1]
    for degree in (d for d in range(2, ranks + 1) if ranks % d == 0):
        axis: dict[str, Any] = {name: degree}
        trial = replace(strategy, shard=Sharding(), **axis)
        if _layers_violation(problem, trial, ranks, ranks) is None:
            legal.append(degree)
    return min(legal, key=lambda d: (abs(d - typed), d))
