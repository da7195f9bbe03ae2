"""Measurement of a kernel entry: ours, eager, compiled, floor, error, memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from gpu.entry import Entry, Function, Make, Sizes
from gpu.stage import Setting, Values, one_line
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher, explain
from shardwright.profiler.timing.device_timing import (
    MIN_RUNS,
    WARM_UP_RUNS,
    DeviceRun,
    copies_to_miss_cache,
    time_on,
)

BUDGET_S = 0.3
NOT_COMPILED = "not compiled in the reduced form"
NO_FORM = "has no form to compile"
FIRST_ONLY = "compiled at the family's first size only"


def measure(entry: Entry, sizes: Sizes, setting: Setting, compiles: bool = True) -> Values:
    """A row of the table.

    Args:
        entry: what is measured.
        sizes: of its operands.
        setting: of the report.
        compiles: whether eager is compiled, too, where it has a form for that.

    Raises:
        ValueError: ours is not what the reference says, or not a number.
    """
    kernels = Dispatcher()
    ours = partial(entry.ours, kernels)
    error = None if entry.error_limit is None else _error(entry, ours, sizes, setting)
    if error is not None and not error <= (entry.error_limit or 0.0):
        raise ValueError(f"off by {error:.1e} from the reference, at most {entry.error_limit}")
    row: dict[str, Any] = {"family": entry.family, "mode": entry.mode, "case": entry.case}
    row |= {"bytes": entry.work.bytes, "flops": entry.work.flops, "bound": entry.bound}
    row |= {"judged": entry.judged, "error": error}
    row["ours"] = _timed(entry, ours, sizes, setting)
    row["eager"] = _timed(entry, entry.eager, sizes, setting)
    row["compiled"] = _compiled(entry, sizes, setting) if compiles else {"why": FIRST_ONLY}
    row["floor_s"] = floor_s(entry, setting.known("ceilings"))
    row["picked"] = [choice.variant.name for choice in kernels.choices()]
    row["why"] = explain(kernels.choices())
    return row


def floor_s(entry: Entry, ceilings: Mapping[str, Values]) -> float | None:
    """Least seconds by measured rates; None if those are unknown."""
    if not {"copy", "matmul"} <= ceilings.keys():
        return None
    copied_s = entry.work.bytes / ceilings["copy"]["bytes_per_s"]
    return float(max(copied_s, entry.work.flops / ceilings["matmul"]["flops_per_s"]))


def _operands(entry: Entry, sizes: Sizes, setting: Setting, seed: int) -> tuple[Any, ...]:
    operands = entry.make(Make(setting.device, sizes.dtype, seed))
    if entry.mode != "forward":
        for x in entry.differentiable(operands):
            x.requires_grad_()
    return operands


def _outputs(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def _weights(outputs: Sequence[Tensor], sizes: Sizes) -> list[Tensor]:
    """Loss to differentiate: a random sum of outputs, or the number itself.

    Drawn in float32 and rounded, so that they are the same numbers in every type.
    """
    made = []
    for out in outputs:
        drawn = Make(out.device, torch.float32, 1).normal(*out.shape)
        made.append(drawn.to(sizes.dtype).to(out.dtype) if out.dim() else torch.ones_like(out))
    return made


def _calls(entry: Entry, function: Function, sizes: Sizes, setting: Setting) -> list[DeviceRun]:
    """Timed calls, one for each copy of the operands."""
    copies = copies_to_miss_cache(entry.work.bytes, setting.device)
    if entry.mode == "backward":
        copies = WARM_UP_RUNS * 2 + MIN_RUNS
    made = [_operands(entry, sizes, setting, seed) for seed in range(copies)]
    if entry.mode == "forward":
        return [partial(function, *operands) for operands in made]
    if entry.mode == "backward":
        return [_each_once([_backward(entry, function, sizes, operands) for operands in made])]
    return [partial(_both, entry, function, operands) for operands in made]


def _backward(entry: Entry, function: Function, sizes: Sizes, operands: Sequence[Any]) -> DeviceRun:
    """The way back through a graph, which goes there only once."""
    outputs = _outputs(function(*operands))
    inputs, weights = entry.differentiable(operands), _weights(outputs, sizes)
    return lambda: torch.autograd.grad(outputs, inputs, weights)


def _each_once(runs: list[DeviceRun]) -> DeviceRun:
    """One call after another, so that no graph is used twice."""
    waiting = iter(runs)
    return lambda: next(waiting)()


def _both(entry: Entry, function: Function, operands: Sequence[Any]) -> object:
    return torch.autograd.grad(function(*operands), entry.differentiable(operands))


def _cloned(operands: Sequence[Any]) -> list[Any]:
    copies = []
    for x in operands:
        is_tensor = isinstance(x, Tensor)
        copies.append(x.detach().clone().requires_grad_(x.requires_grad) if is_tensor else x)
    return copies


def _timed(entry: Entry, function: Function, sizes: Sizes, setting: Setting) -> dict[str, Any]:
    """Median seconds, and peak memory beyond the operands if wanted.

    A way back runs as often as the timing does at least: each run has a graph of its own.
    """
    quiet = torch.no_grad() if entry.mode == "forward" else nullcontext()
    with quiet:
        rotation = _calls(entry, function, sizes, setting)
        timing = time_on(setting.device, rotation, 0.0 if entry.mode == "backward" else BUDGET_S)
        figures = {"time_s": timing.median_s, "spread": timing.spread, "runs": timing.runs}
        if entry.peak:
            figures["peak_bytes"] = _peak_bytes(rotation[0], setting.device)
    del rotation
    gc.collect()
    return figures


def _peak_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """Peak bytes of a run beyond those before it; None on a core."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _compiled(entry: Entry, sizes: Sizes, setting: Setting) -> dict[str, Any]:
    """Eager's operations through torch.compile; why not, where that did not work."""
    if setting.reduced or not entry.compiled:
        return {"why": NOT_COMPILED if setting.reduced else NO_FORM}
    torch.compiler.reset()
    try:
        return _timed(entry, torch.compile(entry.eager, dynamic=False), sizes, setting)
    except Exception as error:  # compilers raise of every kind; the row says what
        return {"why": one_line(error, 120)}


def _error(entry: Entry, ours: Function, sizes: Sizes, setting: Setting) -> float:
    """Largest error of ours against the float32 reference, gradients included."""
    operands = _operands(entry, sizes, setting, seed=1234)
    wide = []
    for x in operands:
        is_float = isinstance(x, Tensor) and x.is_floating_point()
        wide.append(x.detach().float().requires_grad_(x.requires_grad) if is_float else x)
    expected = _all(entry, entry.reference or entry.eager, sizes, wide)
    actual = _all(entry, ours, sizes, _cloned(operands))
    errors = [
        float((a.float() - b.float()).norm() / b.float().norm())
        for a, b in zip(actual, expected, strict=True)
    ]
    return max(errors, key=lambda error: (error != error, error))  # not a number is the worst


def _all(entry: Entry, function: Function, sizes: Sizes, operands: Sequence[Any]) -> list[Tensor]:
    if entry.mode == "forward":
        with torch.no_grad():
            return _outputs(function(*operands))
    outputs = _outputs(function(*operands))
    kept = [out.detach().clone() for out in outputs]
    inputs = entry.differentiable(operands)
    return kept + list(torch.autograd.grad(outputs, inputs, _weights(outputs, sizes)))
