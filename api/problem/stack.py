"""The stack from ``--stack``, ``--attention`` and ``--overlap``."""

from __future__ import annotations

from dataclasses import replace

from ...datasets.catalogue.device import CPU, Device
from ...datasets.catalogue.stack import overlap_settings, stack
from ...spec.choices import ATTENTIONS, OVERLAPS, Overlap
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError, one_of
from ...spec.report.report import Assumption

DEFAULT_STACK = "shardwright"
OWN_STACK = "not given; our own executor, tried on cores only"


def stack_of(
    name: str | None,
    attention: str | None,
    overlap: str | None,
    device: Device,
    dtype: str,
    notes: list[Assumption],
    biased: bool = False,
) -> StackSpec:
    """The stack of ``--stack``, ``--attention`` and ``--overlap`` on a device.

    ``biased``: the model learns biases of attention scores, for which no flash kernel that runs
    here
    has a gradient.

    Raises:
        InputError: an unknown one, or kernels that the device lacks for ``dtype``.
    """
    if name is None:
        name = DEFAULT_STACK
        notes.append(Assumption(path="stack", value=name, why=OWN_STACK))
    chosen = stack(name, on_cores=device.name == CPU)
    if attention is None:
        attention, why = _usual_attention(chosen.name, device, dtype, biased)
        notes.append(Assumption(path="stack.attention", value=attention, why=why))
    kernels = one_of("--attention", attention, ATTENTIONS)
    if attention == "flash" and not _supports_flash(device, dtype):
        raise InputError(
            "--attention", attention, f"unfused for {dtype} on {device.name}", "unfused"
        )
    chosen = replace(chosen, attention=kernels)
    if overlap is None:
        effective = _effective_overlap(chosen.overlap, device)
        notes.append(Assumption(path="stack.overlap", value=effective, why="as the stack"))
        return chosen
    mode = one_of("--overlap", overlap, OVERLAPS)
    if setting := contradicted_setting(name, chosen, mode):
        agreeing = (m for m in reversed(OVERLAPS) if not contradicted_setting(name, chosen, m))
        raise InputError("--overlap", mode, f"a mode with {setting}", next(agreeing, None))
    return chosen.with_overlap(mode)


def contradicted_setting(name: str, chosen: StackSpec, mode: Overlap) -> str | None:
    """The setting in a stack's name that an overlap mode contradicts, or None."""
    kinds = chosen.with_overlap(mode).overlaps
    settings = overlap_settings(name).items()
    return next((text for kind, (text, on) in settings if getattr(kinds, kind) != on), None)


def _usual_attention(name: str, device: Device, dtype: str, biased: bool) -> tuple[str, str]:
    if biased and name.partition(":")[0] == DEFAULT_STACK:
        return "unfused", "not given; no flash kernel that runs here learns biases of scores"
    attention = "flash" if _supports_flash(device, dtype) else "unfused"
    has = "has" if attention == "flash" else "lacks"
    return attention, f"not given; {device.name} {has} flash kernels for {dtype}"


def _supports_flash(device: Device, dtype: str) -> bool:
    """Accelerator flash kernels take only 16-bit numbers (Dao, 2023); CPU all."""
    return device.flash_attention and (device.name == CPU or dtype != "fp32")


def _effective_overlap(overlap: str, device: Device) -> str:
    return "none" if device.name == CPU else overlap
