"""The stack of a published run: as its cells and notes say, else as is usual of its source."""

from __future__ import annotations

from collections.abc import Mapping

from ...datasets.catalogue.stack import stack
from ...datasets.catalogue.stack_settings import (
    parse_settings,
    parse_stack,
    setting_figures,
    settings_of,
    stack_text,
)
from ...datasets.published.notes import read_settings
from ...spec.choices import Overlap
from ..problem.stack import DEFAULT_STACK, contradicted_setting
from .published_model import RunDraft

STACK = "--stack"
TIME_FIGURES = frozenset({"overlaps", "launch_s", "pass_s", "flash_generation"})
"""Figures that no peak of memory depends on: rows that differ in them are calibrated as one."""
MODE_SETTINGS: Mapping[Overlap, Mapping[str, str]] = {
    "none": {"grad_overlap": "off", "param_overlap": "off", "tp_overlap": "off"},
    "dp": {"grad_overlap": "on", "param_overlap": "on", "tp_overlap": "off"},
    "dp+tp": {"grad_overlap": "on", "param_overlap": "on", "tp_overlap": "on"},
    "all": dict.fromkeys(("grad_overlap", "param_overlap", "tp_overlap", "p2p_overlap",
                          "cp_overlap", "expert_overlap"), "on"),
}  # fmt: skip
"""An overlap mode in settings, one of which a run may contradict."""


def choose_stack(draft: RunDraft) -> None:
    """Set stack, attention and overlap.

    Raises:
        InputError: a cell that names no stack, setting or value.
    """
    arguments, usual_stack = draft.arguments, draft.source.get("stack", DEFAULT_STACK)
    name, cells = _printed_name(draft), (draft.run.stack, draft.run.where)
    if name is None:
        _choose_usual(draft)
    elif name == parse_stack(usual_stack, STACK)[0]:
        _take_usual(draft, ("attention", "overlap"))
    base, settings = parse_stack(name or arguments.get("stack", DEFAULT_STACK), STACK)
    noted = _noted_settings(draft, base)
    printed = {k: v for cell in cells for k, v in _cell_settings(draft, cell, base).items()}
    without_notes = {**settings, **printed}
    settings = {**settings, **noted, **printed}
    text = stack(stack_text(base, settings)).name
    if text != stack(stack_text(base, without_notes)).name:
        draft.assumed[:] = [note for note in draft.assumed if note.path != "stack"]
        draft.assume("stack", text, "settings read from the notes")
    if noted or printed or name is not None:
        arguments["stack"] = text
        _reconcile_overlap(draft, base, settings)


def _noted_settings(draft: RunDraft, base: str) -> Mapping[str, str]:
    """Settings of the notes that the stack has; of a peak, those that move memory."""
    of_memory = bool(draft.run.metric_kind)
    return {
        key: value
        for key, value in read_settings(draft.run.notes).items()
        if key in settings_of(base)
        and not (of_memory and setting_figures(key, value).keys() <= TIME_FIGURES)
    }


def _printed_name(draft: RunDraft) -> str | None:
    cells = (draft.run.stack, draft.run.where)
    heads = [cell.partition(":")[0].strip() for cell in cells]
    name = next((head for head in heads if head and "=" not in head), None)
    if name is None:
        return None
    parse_stack(name, f"{draft.run.id}: stack")
    return name


def _cell_settings(draft: RunDraft, cell: str, base: str) -> Mapping[str, str]:
    """The settings of a cell with or without a stack's name, parted by commas or semicolons."""
    head, _, tail = cell.replace(";", ",").partition(":")
    text = head if "=" in head else tail
    return parse_settings(text, base, f"{draft.run.id}: stack") if text.strip() else {}


def _choose_usual(draft: RunDraft) -> None:
    source, arguments = draft.source, draft.arguments
    if "fully_sharded" in source and arguments["shard"] == "zero3":
        why = f"{source['stack']} shards no parameters here"
        arguments["stack"] = draft.assume("stack", source["fully_sharded"], why)
    else:
        _take_usual(draft, ("stack", "attention", "overlap"))


def _take_usual(draft: RunDraft, names: tuple[str, ...]) -> None:
    source, arguments = draft.source, draft.arguments
    for name in names:
        if name in source:
            arguments[name] = draft.usual(name, "")
    if arguments.get("attention") == "unfused" and arguments["cp"] > 1:
        arguments["attention"] = draft.assume(
            "attention", "flash", "a ring of keys is flash attention"
        )


def _reconcile_overlap(draft: RunDraft, base: str, settings: Mapping[str, str]) -> None:
    """Say the source's usual overlap in settings where the run contradicts it."""
    arguments = draft.arguments
    mode, typed = arguments.get("overlap"), stack_text(base, settings)
    if mode and contradicted_setting(typed, stack(typed), mode):
        every = {**MODE_SETTINGS[arguments.pop("overlap")], **settings}
        arguments["stack"] = stack(stack_text(base, every)).name
