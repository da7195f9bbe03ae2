"""Pins as typed, checked against the model, the machine and each other before any search."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from ..planner.pins import Pin, parse_pin
from ..planner.shard_levels import with_degrees
from ..planner.space import divisors
from ..spec.errors import InputError, nearest_divisor
from ..spec.legality import (
    executable_reason,
    layer_reason,
    schedule_reason,
    schedule_stack_reason,
)
from ..spec.model import Layer
from ..spec.schedule import V_KINDS, ScheduleKind
from ..spec.strategy import LayerStrategy, Sharding
from ..spec.tensor_split import split_sizes
from ..spec.towers import layer_places
from .inputs import Problem

FIELD = "--pin"


def resolve_pins(
    texts: Iterable[str], problem: Problem, executable: bool = False, field: str = FIELD
) -> tuple[Pin, ...]:
    """The pins that were typed.

    Args:
        texts: ``KEY[@LAYERS]=VALUE`` each.
        problem: what is planned.
        executable: whether the plan must run here; then a pin on what cannot run is refused.
        field: how to name the pins in an error.

    Raises:
        InputError: an unknown key, an impossible value, or pins that contradict each other.
        NotBuiltError: a key that is not searched yet.
    """
    layers = problem.model.layers()
    pins = tuple(parse_pin(text, len(layers), field) for text in texts)
    for first, second in combinations(pins, 2):
        if first.key == second.key and first.value != second.value and _meet(first, second):
            both = f"{first.text} and {second.text}"
            raise InputError(field, both, "one value for a layer", second.text)
    for pin in pins:
        if pin.key == "tp":
            _check_tp(pin, problem, layers, field)
        elif pin.key in ("micro_batch", "dp"):
            _check_batch(pin, problem, field)
        elif pin.key == "shard":
            _check_shard(pin, pins, problem, executable, field)
    _check_schedule(pins, problem, field)
    _check_devices(pins, problem, field)
    return pins


def _meet(first: Pin, second: Pin) -> bool:
    """Whether two pins speak of some layer both."""
    if first.layers is None or second.layers is None:
        return True
    return max(first.layers[0], second.layers[0]) <= min(first.layers[1], second.layers[1])


def _whole(pins: Iterable[Pin], key: str) -> int | None:
    """The number that is pinned for the whole plan; None if there is none."""
    found = (pin.value for pin in pins if pin.key == key and pin.layers is None)
    return next((value for value in found if isinstance(value, int)), None)


def _check_tp(pin: Pin, problem: Problem, layers: tuple[Layer, ...], field: str) -> None:
    tp = int(pin.value)
    strategy = LayerStrategy(tp=tp)
    places = layer_places(problem.model, problem.workload.seq_len)
    covered = [(x, places[n].tokens) for n, x in enumerate(layers) if pin.covers(n)]
    for layer, tokens in dict.fromkeys(covered):
        reason = layer_reason(layer, strategy, tp, 1, tokens)
        if reason:
            near = _divisor_of_all(layer, tp)
            allowed = f"a degree that splits these layers ({reason})"
            raise InputError(field, pin.text, allowed, f"tp={near}" if near else None)


def _divisor_of_all(layer: Layer, tp: int) -> int | None:
    sizes = split_sizes(layer).values()
    if not sizes:
        return None
    shared = [d for d in divisors(min(sizes)) if all(size % d == 0 for size in sizes)]
    return min(shared, key=lambda d: (abs(d - tp), d))


def _check_batch(pin: Pin, problem: Problem, field: str) -> None:
    batch, value = problem.workload.global_batch, int(pin.value)
    if batch % value:
        near = nearest_divisor(min(value, 2**16), min(batch, 2**16)) if batch <= 2**20 else 1
        raise InputError(field, pin.text, f"a divisor of the global batch {batch}", near)


def _check_shard(
    pin: Pin, pins: tuple[Pin, ...], problem: Problem, executable: bool, field: str
) -> None:
    """Levels that the cluster has, and degrees that nest; with tp as pinned, else 1."""
    tp = min(_whole(pins, "tp") or 1, problem.cluster.device_count)
    most = _whole(pins, "dp") or problem.cluster.device_count // tp
    text = with_degrees(str(pin.value), problem.cluster, tp, most, field)
    if "/" not in text:
        return
    degrees = [int(part) for part in text.split("/")]
    ranks = max(degrees)
    if any(ranks % degree for degree in degrees):
        raise InputError(field, pin.text, "degrees that divide one another", "shard=1/1/8")
    strategy = LayerStrategy(shard=Sharding.from_text(text, ranks, field))
    layer = problem.model.layers()[1]
    if reason := layer_reason(layer, strategy, ranks, ranks, problem.workload.seq_len):
        raise InputError(field, pin.text, f"nested degrees ({reason})", "shard=1/1/8")
    if executable and (reason := executable_reason(strategy, problem.workload)):
        raise InputError(field, pin.text, f"what --execute can run ({reason})", "shard=zero1")


def _check_schedule(pins: tuple[Pin, ...], problem: Problem, field: str) -> None:
    pp, vpp = _whole(pins, "pp"), _whole(pins, "vpp")
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
    if reason := schedule_stack_reason(kind, problem.stack):
        raise InputError(field, f"schedule={kind}", f"one that the stack can say ({reason})")
    usual = 2 if kind == "interleaved" or kind in V_KINDS else 1
    stages, chunks = pp or min(2, layers), vpp or usual
    if reason := schedule_reason(kind, stages, chunks, 2 * stages, layers):
        given = ", ".join(p.text for p in pins if p.key in ("pp", "vpp", "schedule"))
        raise InputError(field, given, f"pins that agree ({reason})")


def _check_devices(pins: tuple[Pin, ...], problem: Problem, field: str) -> None:
    degrees = [_whole(pins, key) or 1 for key in ("tp", "pp", "dp")]
    product, devices = degrees[0] * degrees[1] * degrees[2], problem.cluster.device_count
    if product > devices:
        given = ", ".join(p.text for p in pins if p.key in ("tp", "pp", "dp"))
        raise InputError(field, given, f"tp x pp x dp of at most {devices} devices, not {product}")
