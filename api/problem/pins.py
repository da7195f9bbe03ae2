"""Pins, checked against model, machine and each other before searching."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from ...planner.solve.problem import Problem
from ...planner.space.pins import Pin, parse_pin
from ...planner.space.program_options import device_need
from ...planner.space.shard_levels import with_degrees
from ...spec.errors import InputError, nearest_divisor
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import Layer
from ...spec.model.towers import layer_contexts
from ...spec.program_values import program_stack_violation, program_violation, unsupported_program
from ...spec.recomputation import is_by_operation, resolve_recompute
from ...spec.rules.executable import unsupported_strategy
from ...spec.rules.plan_rules import (
    layer_violation,
    schedule_stack_violation,
    schedule_violation,
    unsupported_run,
)
from ...spec.schedules.stage_order import V_KINDS, ScheduleKind
from ...spec.strategy import LayerStrategy, Sharding
from ...spec.technique import OFF, layer_kind_violation
from ...spec.technique_values import (
    technique_stack_violation,
    technique_violation,
    with_word,
)

PinsLike = str | Iterable[str] | Mapping[str, int | str]
PIN_FLAG = "--pin"
PINS_TEXT = "a mapping, a list of KEY=VALUE, or one text of them"
PINS_EXAMPLE = "{'tp': 8, 'recompute@1-40': 'full'}"
BETWEEN_PINS = re.compile(r"[\s,]+(?=[A-Za-z_-]+(?:@[\d-]+)?=)")
"""What stands between two pins of a text: a value may hold commas itself."""
DEGREES = ("tp", "cp", "pp", "dp")
"""Pins whose product is the devices that a plan uses."""


def pin_texts(pins: PinsLike, field: str = PIN_FLAG) -> tuple[str, ...]:
    """Pins as texts ``KEY[@LAYERS]=VALUE``.

    Args:
        pins: a mapping of keys to values, texts, or one text with commas or spaces between pins.
        field: name of the pins in an error.

    Raises:
        InputError: a value of another type.
    """
    if isinstance(pins, str):
        return tuple(part for part in BETWEEN_PINS.split(pins.strip(" ,")) if part)
    if isinstance(pins, Mapping):
        return tuple(f"{key}={_pin_value(key, value, field)}" for key, value in pins.items())
    texts: tuple[Any, ...] = tuple(pins) if hasattr(pins, "__iter__") else (pins,)
    for text in texts:
        if not isinstance(text, str):
            raise InputError(field, repr(text), PINS_TEXT, PINS_EXAMPLE)
    return texts


def _pin_value(key: object, value: object, field: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        given = f"{key!r}: {value!r}"
        raise InputError(field, given, "a whole number or a text for each key", PINS_EXAMPLE)
    return str(value)


def resolve_pins(
    texts: Iterable[str], problem: Problem, executable: bool = False, field: str = PIN_FLAG
) -> tuple[Pin, ...]:
    """Parse and check pins.

    Args:
        texts: ``KEY[@LAYERS]=VALUE`` each.
        problem: the question.
        executable: True if the plan must run here: pins on what cannot run are refused.
        field: name of the pins in an error.

    Raises:
        InputError: an unknown key, an impossible value, or contradictory pins.
    """
    layers = problem.model.layers()
    parsed = (parse_pin(text, len(layers), field, problem.techniques) for text in texts)
    pins = tuple(_named_results(pin, problem, field) for pin in parsed)
    for first, second in combinations(pins, 2):
        if first.key == second.key and first.value != second.value and _share_layers(first, second):
            both = f"{first.text} and {second.text}"
            raise InputError(field, both, "one value for a layer", second.text)
    for pin in pins:
        if pin.key in ("tp", "cp", "ep", "etp"):
            _check_degree(pin, problem, layers, field)
        elif pin.key in ("micro_batch", "dp"):
            _check_batch(pin, problem, field)
        elif pin.key == "shard":
            _check_shard(pin, pins, problem, executable, field)
        elif pin.key in problem.techniques.of_programs:
            _check_program_value(pin, problem, field)
        elif pin.key in problem.techniques.names:
            _check_technique(pin, problem, layers, field)
        if executable and (reason := _unsupported_pin(pin, problem)):
            raise InputError(field, pin.text, f"what --execute can run ({reason})")
    _check_claims(pins, problem, field)
    _check_schedule(pins, problem, field)
    _check_devices(pins, problem, field)
    return pins


def _named_results(pin: Pin, problem: Problem, field: str) -> Pin:
    if pin.key != "recompute":
        return pin
    text = resolve_recompute(str(pin.value), problem.model, f"{field} recompute")
    if is_by_operation(text) and not problem.stack.recompute_by_operation:
        words = " or ".join(f"recompute={word}" for word in problem.stack.recompute)
        raise InputError(field, pin.text, f"{words} with the stack {problem.stack.name}")
    return replace(pin, value=text)


def _unsupported_pin(pin: Pin, problem: Problem) -> str | None:
    technique = problem.techniques.value(pin.key)
    if technique is not None and technique.program is not None:
        pinned = problem.techniques.pinned(technique, str(pin.value), pin.key)
        return unsupported_program({pin.key: pinned}, problem.techniques.values)
    if pin.key == "sp":
        strategy = LayerStrategy(tp=2, sequence_parallel=pin.value)  # type: ignore[arg-type]
    else:
        strategy = LayerStrategy(cp=int(pin.value) if pin.key == "cp" else 1)
    reason = unsupported_run(strategy, problem.workload)
    return reason or unsupported_strategy(problem.model, strategy, problem.workload)


def _share_layers(first: Pin, second: Pin) -> bool:
    if first.layers is None or second.layers is None:
        return True
    return max(first.layers[0], second.layers[0]) <= min(first.layers[1], second.layers[1])


def _plan_wide_value(pins: Iterable[Pin], key: str) -> int | None:
    values = (pin.value for pin in pins if pin.key == key and pin.layers is None)
    return next((value for value in values if isinstance(value, int)), None)


def _check_degree(pin: Pin, problem: Problem, layers: tuple[Layer, ...], field: str) -> None:
    """Refuse a degree that some layer under the pin cannot have."""
    contexts = layer_contexts(problem.model, problem.workload.seq_len)
    covered = {(x, contexts[n].tokens): None for n, x in enumerate(layers) if pin.covers(n)}
    if pin.key in ("ep", "etp"):
        covered = {key: None for key in covered if experts_of(key[0])}
        if not covered and pin.value != 1:
            raise InputError(field, pin.text, "1: there are no experts", f"{pin.key}=1")

    def violation(degree: int) -> str | None:
        broken = (_degree_violation(pin.key, degree, layer, tokens) for layer, tokens in covered)
        return next((reason for reason in broken if reason), None)

    pinned = int(pin.value)
    if reason := violation(pinned):
        degrees = range(1, problem.cluster.device_count + 1)
        near = min(degrees, key=lambda d: (violation(d) is not None, abs(d - pinned), d))
        allowed = f"a degree that splits these layers ({reason})"
        raise InputError(field, pin.text, allowed, f"{pin.key}={near}")


def _degree_violation(key: str, degree: int, layer: Layer, tokens: int) -> str | None:
    """Rule against a layer's degree, all else free, or None.

    Experts beside tp need sequence parallelism, or the same split as the other weights.
    """
    axis: dict[str, Any] = {key: degree}
    strategies = [LayerStrategy(**axis)]
    if key == "tp" and degree > 1:
        strategies.append(replace(strategies[0], sequence_parallel="megatron"))
        if experts_of(layer):
            strategies.append(replace(strategies[0], etp=degree))
    reasons = [layer_violation(layer, s, degree, degree, tokens) for s in strategies]
    return None if None in reasons else reasons[0]


def _check_batch(pin: Pin, problem: Problem, field: str) -> None:
    batch, value = problem.workload.global_batch, int(pin.value)
    if batch % value:
        near = nearest_divisor(min(value, 2**16), min(batch, 2**16)) if batch <= 2**20 else 1
        raise InputError(field, pin.text, f"a divisor of the global batch {batch}", near)


def _check_shard(
    pin: Pin, pins: tuple[Pin, ...], problem: Problem, executable: bool, field: str
) -> None:
    """Refuse levels outside the cluster and degrees that do not nest.

    tp is as pinned, else 1.
    """
    tp = min(_plan_wide_value(pins, "tp") or 1, problem.cluster.device_count)
    most = _plan_wide_value(pins, "dp") or problem.cluster.device_count // tp
    text = with_degrees(str(pin.value), problem.cluster, tp, most, field)
    if text.startswith("hpz:"):
        degree = int(text[len("hpz:") :])
        within = most if degree >= most else most - most % degree
        Sharding.from_text(text, within, field)
        return
    if "/" not in text:
        return
    degrees = [int(part) for part in text.partition("+")[0].split("/")]
    ranks = max(degrees)
    if any(ranks % degree for degree in degrees):
        raise InputError(field, pin.text, "degrees that divide one another", "shard=1/1/8")
    strategy = LayerStrategy(shard=Sharding.from_text(text, ranks, field))
    layer = problem.model.layers()[1]
    if reason := layer_violation(layer, strategy, ranks, ranks, problem.workload.seq_len):
        raise InputError(field, pin.text, f"nested degrees ({reason})", "shard=1/1/8")
    if executable and (reason := unsupported_run(strategy, problem.workload)):
        raise InputError(field, pin.text, f"what --execute can run ({reason})", "shard=zero1")


def _check_technique(pin: Pin, problem: Problem, layers: tuple[Layer, ...], field: str) -> None:
    """Refuse a technique illegal for layers, stack or devices.

    It is tried alone and sharded, with whole parameters, without, and with a second copy; and split
    with its sequence.
    """
    techniques = problem.techniques
    value, choice = next(pair for pair in techniques.plannable if pair[0].name == pin.key)
    alone = with_word(LayerStrategy(), value, str(pin.value), field)
    kinds = value.kinds.plannable
    covered = {x: None for n, x in enumerate(layers) if pin.covers(n)}
    plannable = [x for x in covered if layer_kind_violation(value, x, kinds) is None]
    dtype, groups = problem.workload.dtype, problem.cluster.groups
    sharded = [
        (replace(alone, shard=Sharding.from_text(text, ranks)), ranks)
        for text, ranks in (("zero3", 2), ("zero2", 2), ("hpz:2", 4))
    ]
    sharded.append((replace(alone, tp=2, sequence_parallel="megatron"), 2))
    reasons = [
        technique_violation(x, alone, 1, dtype, techniques.values)
        if all(
            technique_violation(x, s, ranks, dtype, techniques.values)
            for s, ranks in (*sharded, *_with_experts_apart(x, alone))
        )
        else None
        for x in plannable
    ]
    if not plannable:
        reasons += [layer_kind_violation(value, x, kinds) for x in covered]
    reasons.append(technique_stack_violation(alone, problem.stack, techniques.values))
    if (pinned := value.of(alone)) is not None:
        needs = [choice.device_reason(pinned, group.device) for group in groups]
        reasons += [f"it needs {need}" for need in needs if need]
    if reason := next((reason for reason in reasons if reason), None):
        allowed = f"what these layers can be ({reason})"
        raise InputError(field, pin.text, allowed, f"{pin.key}={OFF}")


def _with_experts_apart(layer: Layer, strategy: LayerStrategy) -> list[tuple[LayerStrategy, int]]:
    """The strategy with each expert of a layer on ranks of its own; empty without any."""
    moe = experts_of(layer)
    if moe is None:
        return []
    ep = moe.experts
    return [(replace(strategy, ep=ep, etp=etp), ep * etp) for etp in (1, 2)]


def _check_program_value(pin: Pin, problem: Problem, field: str) -> None:
    """Refuse a value illegal for the program, stack or devices."""
    techniques = problem.techniques
    value, choice = next(pair for pair in techniques.plannable if pair[0].name == pin.key)
    pinned = techniques.pinned(value, str(pin.value), field)
    if pinned is None:
        return
    values, known = {value.name: pinned}, techniques.values
    need = device_need(choice, pinned, problem.cluster)
    reason = program_violation(values, problem.model, problem.workload, known)
    reason = reason or program_stack_violation(values, problem.stack, known)
    if reason := reason or (f"it needs {need}" if need else None):
        allowed = f"what the program can be ({reason})"
        raise InputError(field, pin.text, allowed, f"{pin.key}={OFF}")


def _check_claims(pins: tuple[Pin, ...], problem: Problem, field: str) -> None:
    """Refuse pinned values of the program that claim the same state."""
    techniques = problem.techniques
    pinned = {pin.key: pin for pin in pins if pin.key in techniques.of_programs}
    values = {
        name: value
        for name, pin in pinned.items()
        if (technique := techniques.value(name)) is not None
        and (value := techniques.pinned(technique, str(pin.value), field)) is not None
    }
    if reason := program_violation(values, problem.model, problem.workload, techniques.values):
        texts = ", ".join(pinned[name].text for name in values)
        raise InputError(field, texts, f"values that agree ({reason})")


def _check_schedule(pins: tuple[Pin, ...], problem: Problem, field: str) -> None:
    pp, vpp = _plan_wide_value(pins, "pp"), _plan_wide_value(pins, "vpp")
    layers = len(problem.model.layers())
    if pp is not None and pp > layers:
        raise InputError(field, f"pp={pp}", f"at most the model's {layers} layers", f"pp={layers}")
    kind: ScheduleKind | None = next(
        (pin.value for pin in pins if pin.key == "schedule"),  # type: ignore[misc]
        None,
    )
    if kind is None and vpp is None:
        return
    if kind is None:
        kind = "interleaved" if vpp != 1 else "1f1b"
    if reason := schedule_stack_violation(kind, problem.stack):
        raise InputError(field, f"schedule={kind}", f"one that the stack can say ({reason})")
    default_chunks = 2 if kind == "interleaved" or kind in V_KINDS else 1
    stages, chunks = pp or min(2, layers), vpp or default_chunks
    if reason := schedule_violation(kind, stages, chunks, 2 * stages, layers):
        texts = ", ".join(p.text for p in pins if p.key in ("pp", "vpp", "schedule"))
        raise InputError(field, texts, f"pins that agree ({reason})")


def _check_devices(pins: tuple[Pin, ...], problem: Problem, field: str) -> None:
    degrees = [_plan_wide_value(pins, key) or 1 for key in DEGREES]
    product, devices = math.prod(degrees), problem.cluster.device_count
    if product > devices:
        texts = ", ".join(p.text for p in pins if p.key in DEGREES)
        raise InputError(
            field, texts, f"{' x '.join(DEGREES)} of at most {devices} devices, not {product}"
        )
