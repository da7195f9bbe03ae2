"""Number formats, optimizer and trainable parameters, from flags."""

from __future__ import annotations

from collections.abc import Mapping

from ...datasets.catalogue.device import CPU, Device
from ...datasets.catalogue.device_formats import require_dtype, require_format
from ...spec.choices import OPTIMIZERS, Optimizer
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError, nearest_name, one_of
from ...spec.model.model_spec import ModelSpec
from ...spec.report.report import Assumption
from ...spec.workload.number_formats import USUAL_STATES
from ...spec.workload.training import Lora
from ...spec.workload.workload import DtypeRecord
from .adapters import TRAINABLE, lora_of


def gradient_notes(dtype: DtypeRecord, stack: StackSpec) -> list[Assumption]:
    """Note on gradients that the stack keeps as its shards, whatever reduces them."""
    if stack.state_layout != "fsdp2" or dtype.gradient in (USUAL_STATES, dtype.master):
        return []
    why = f"{stack.name} keeps shards of gradients as its master weights"
    why += f"; {dtype.gradient} until they are reduced"
    return [Assumption(path="workload.dtype.gradient", value=dtype.master, why=why)]


def dtype_of(
    shorthand: str | None,
    weakest: Device,
    devices: list[Device],
    notes: list[Assumption],
    states: Mapping[str, str],
) -> DtypeRecord:
    """The dtype record of ``--dtype``, or the weakest device's default.

    ``states`` are the formats typed for gradients, master weights and moments.

    Raises:
        InputError: an unknown shorthand, or one that a device cannot compute in.
    """
    if shorthand is None:
        name, why = _usual_dtype(weakest, "states as given" if states else "fp32 master weights")
        notes.append(Assumption(path="workload.dtype", value=name, why=why))
        return DtypeRecord.from_shorthand(name)
    record = DtypeRecord.from_shorthand(shorthand)
    for device in devices:
        if record.matmul is not None:
            require_format(device, record.matmul, "--dtype")
        require_dtype(device, record.param, "--dtype")
    return record


def _usual_dtype(device: Device, states: str) -> tuple[str, str]:
    if device.name == CPU:
        return "fp32", "not given; fp32 on this machine's cores"
    if "bf16" in device.dtypes:
        return "bf16", f"not given; bf16 with {states}"
    return "fp16", f"not given; {device.name} has no bf16, so fp16 with {states}"


def optimizer_of(name: str | None, notes: list[Assumption]) -> Optimizer:
    """The optimizer of ``--optimizer``; by default adamw.

    Raises:
        InputError: an unknown one.
    """
    if name is None:
        notes.append(Assumption(path="workload.optimizer", value="adamw", why="not given"))
        return "adamw"
    return one_of("--optimizer", name, OPTIMIZERS)


def trainable_of(trainable: str | None, model: ModelSpec) -> tuple[Lora | None, tuple[str, ...]]:
    """Adapters and frozen towers of ``--trainable``.

    Args:
        trainable: ``full``, ``lora``, ``lora:rank=16,alpha=32,targets=query,value`` (PEFT's names
            too: ``lora:r=16,target_modules=q_proj,v_proj``) or ``frozen:TOWER,…``.
        model: the model whose layers and towers it names.

    Raises:
        InputError: another form, an unknown key, target or tower.
    """
    kind, _, rest = (trainable or "full").partition(":")
    if kind == "full" and not rest:
        return None, ()
    if kind == "lora":
        return lora_of(rest, trainable or "", model), ()
    if kind == "frozen" and rest:
        return None, _towers(rest.split(","), model)
    near = "lora:base_dtype=nf4" if kind == "qlora" else "full"
    raise InputError("--trainable", trainable, TRAINABLE, near)


def _towers(names: list[str], model: ModelSpec) -> tuple[str, ...]:
    towers = [tower.name for tower in model.towers]
    for name in names:
        if name not in towers:
            allowed = "towers of the model: " + ", ".join(towers)
            raise InputError("--trainable", name, allowed, nearest_name(name, towers))
    if set(names) >= set(towers):
        raise InputError("--trainable", ",".join(names), "a tower left to train")
    return tuple(names)
