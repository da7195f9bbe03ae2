"""Plans from files and texts, size-checked before large allocations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...spec.codec import parse_json, read_text
from ...spec.errors import InputError
from ...spec.limits import MAX_LAYERS, MAX_PLAN_DEVICES
from ...spec.plan.plan import Plan, load_plan
from .model_and_cluster import check_plan

PLAN_KEYS = ("schema_version", "models", "cluster", "workloads", "programs")
HINT = "a file that plan --out or --json wrote"


def read_plan(path: str) -> Plan:
    """Read a legal, usable plan from a file.

    The file holds a Plan, or any document with a ``plan`` key.

    Raises:
        InputError: the file cannot be read, or holds no such plan.
        NotBuiltError: a plan that this version does not support yet.
    """
    return plan_from_text(plan_text(path), path)


def plan_text(path: str) -> str:
    """The text of a plan file.

    Raises:
        InputError: the file cannot be read, or is empty.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        raise InputError(path, "a folder", "a plan file, such as plan --out writes")
    text = read_text(file, "a plan file, such as plan --out writes")
    if not text.strip():
        raise InputError(path, "an empty file", "a plan file, such as plan --out writes")
    return text


def plan_from_text(text: str | bytes, where: str) -> Plan:
    """Read a legal, usable plan from JSON; ``where`` names it in errors."""
    document = parse_json(text, where)
    if isinstance(document, dict) and not {"plan", *PLAN_KEYS} & set(document):
        raise InputError(where, "none of a plan's keys", f"a plan ({', '.join(PLAN_KEYS)})", HINT)
    _refuse_oversized(document, where)
    return check_plan(load_plan(text, where), where)


def _refuse_oversized(document: Any, where: str) -> None:
    plan = document.get("plan", document) if isinstance(document, dict) else None
    for name, runs in _layer_counts(plan):
        if runs > MAX_LAYERS:
            raise InputError(f"{where}: models.{name}", f"{runs} layers", f"at most {MAX_LAYERS}")
    devices = sum(_numbers(plan, "programs", "stages", "devices", "count"))
    if devices > MAX_PLAN_DEVICES:
        raise InputError(f"{where}: stages", f"{devices} devices", f"at most {MAX_PLAN_DEVICES}")


def _layer_counts(plan: Any) -> Iterator[tuple[str, int]]:
    models = plan.get("models") if isinstance(plan, dict) else None
    for name, model in models.items() if isinstance(models, dict) else ():
        yield name, sum(_numbers(model, "towers", "layers", "count"))


def _numbers(document: Any, *path: str) -> Iterator[int]:
    """Every whole number at ``path``, through lists.

    Other shapes are left to later checks.
    """
    if isinstance(document, list):
        for item in document:
            yield from _numbers(item, *path)
    elif path:
        if isinstance(document, dict):
            yield from _numbers(document.get(path[0]), *path[1:])
    elif isinstance(document, int):
        yield document
