"""Number formats, optimizer and trainable parameters, from flags."""

from __future__ import annotations

from typing import Any

from ...datasets.catalogue.device import CPU, Device
from ...datasets.catalogue.device_formats import require_dtype, require_format
from ...spec.choices import OPTIMIZERS, Optimizer
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError, nearest_name, one_of
from ...spec.model.model_spec import ModelSpec
from ...spec.report.report import Assumption
from ...spec.workload.base_formats import BASE_FORMATS
from ...spec.workload.number_formats import USUAL_STATES
from ...spec.workload.training import Lora, target_names
from ...spec.workload.workload import DtypeRecord

TRAINABLE = "full, lora:rank=R,alpha=A,targets=NAME,…,base_dtype=D or frozen:TOWER,…"
LORA_KEYS = ("rank", "alpha", "targets", "base_dtype")


def gradient_notes(dtype: DtypeRecord, stack: StackSpec) -> list[Assumption]:
    """Note on gradients that the stack keeps as its shards, whatever reduces them."""
    if stack.state_layout != "fsdp2" or dtype.gradient in (USUAL_STATES, dtype.master):
        return []
    why = f"{stack.name} keeps shards of gradients as its master weights"
    why += f"; {dtype.gradient} until they are reduced"
    return [Assumption(path="workload.dtype.gradient", value=dtype.master, why=why)]


def dtype_of(
    shorthand: str | None, weakest: Device, devices: list[Device], notes: list[Assumption]
) -> DtypeRecord:
    """The dtype record of ``--dtype``, or the weakest device's default.

    Raises:
        InputError: an unknown shorthand, or one that a device cannot compute in.
    """
    if shorthand is None:
        name, why = _usual_dtype(weakest)
        notes.append(Assumption(path="workload.dtype", value=name, why=why))
        return DtypeRecord.from_shorthand(name)
    record = DtypeRecord.from_shorthand(shorthand)
    for device in devices:
        if record.matmul is not None:
            require_format(device, record.matmul, "--dtype")
        require_dtype(device, record.param, "--dtype")
    return record


def _usual_dtype(device: Device) -> tuple[str, str]:
    if device.name == CPU:
        return "fp32", "not given; fp32 on this machine's cores"
    if "bf16" in device.dtypes:
        return "bf16", "not given; bf16 with fp32 master weights"
    return "fp16", f"not given; {device.name} has no bf16, so fp16 with fp32 master weights"


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
        trainable: ``full``, ``lora``, ``lora:rank=16,alpha=32,targets=query,value`` or
            ``frozen:TOWER,…``.
        model: the model whose layers and towers it names.

    Raises:
        InputError: another form, an unknown key, target or tower.
    """
    kind, _, rest = (trainable or "full").partition(":")
    if kind == "full" and not rest:
        return None, ()
    if kind == "lora":
        return _lora(rest, trainable or "", model), ()
    if kind == "frozen" and rest:
        return None, _towers(rest.split(","), model)
    raise InputError("--trainable", trainable, TRAINABLE, "full")


def _towers(names: list[str], model: ModelSpec) -> tuple[str, ...]:
    towers = [tower.name for tower in model.towers]
    for name in names:
        if name not in towers:
            allowed = "towers of the model: " + ", ".join(towers)
            raise InputError("--trainable", name, allowed, nearest_name(name, towers))
    if set(names) >= set(towers):
        raise InputError("--trainable", ",".join(names), "a tower left to train")
    return tuple(names)


def _lora(text: str, trainable: str, model: ModelSpec) -> Lora:
    values: dict[str, str] = {}
    key = ""
    for part in text.split(",") if text else []:
        name, equals, value = part.partition("=")
        if equals:
            key, values[name] = name, value
        elif key == "targets":  # further targets
            values[key] += f",{part}"
        else:
            raise InputError("--trainable", trainable, TRAINABLE, "lora:rank=16")
    for name in values:
        if name not in LORA_KEYS:
            allowed = "lora with " + ", ".join(LORA_KEYS)
            raise InputError("--trainable", name, allowed, nearest_name(name, LORA_KEYS))
    rank = _positive(values.get("rank", "16"), "rank", whole=True)
    alpha = _positive(values.get("alpha", str(2 * rank)), "alpha")
    base: Any = values.get("base_dtype")
    if base is not None and base not in BASE_FORMATS:
        allowed = "base_dtype " + ", ".join(BASE_FORMATS)
        raise InputError("--trainable", base, allowed, nearest_name(base, BASE_FORMATS))
    targets = _targets(values.get("targets", "query,value"), model)
    return Lora(rank=int(rank), alpha=alpha, targets=targets, base_dtype=base)


def adapters_text(adapters: Lora) -> str:
    """Adapters as ``--trainable`` text, defaults included."""
    text = f"lora:rank={adapters.rank},alpha={adapters.alpha:g}"
    text += f",targets={','.join(adapters.targets)}"
    return text if adapters.base_dtype is None else f"{text},base_dtype={adapters.base_dtype}"


def _positive(text: str, name: str, whole: bool = False) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 2**16 or (whole and number != int(number)):
        allowed = f"{name} as a positive {'whole ' if whole else ''}number, such as 16"
        raise InputError("--trainable", f"{name}={text}", allowed, 16)
    return number


def _targets(text: str, model: ModelSpec) -> tuple[str, ...]:
    targets = target_names(model)
    if text == "all":
        return targets
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in targets:
            allowed = "all, or linear layers of the model's blocks: " + ", ".join(targets)
            raise InputError("--trainable", f"targets={name}", allowed, nearest_name(name, targets))
    return names
