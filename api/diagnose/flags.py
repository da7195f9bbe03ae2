"""Differences between two plans in the words of a framework's files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import ShardwrightError
from ...spec.plan.plan import Plan
from ..frameworks.exportable import exportable
from ..frameworks.framework import Framework
from ..frameworks.framework_file import framework_file

NOTHING, DASHES = "left out", "--"


class FlagChange(NamedTuple):
    """A key of a framework's file, and its values."""

    key: str
    was: str
    now: str

    def __str__(self) -> str:
        if self.now == NOTHING:
            return f"without {self.key}"
        is_switch = self.key.startswith(DASHES) and self.now == "True"
        return self.key if is_switch else f"{self.key} {self.now}"


def flag_changes(
    framework: Framework | None, was: tuple[Plan, StackSpec], now: tuple[Plan, StackSpec]
) -> tuple[FlagChange, ...]:
    """Keys that differ between the files of two plans; none where no file can be written.

    Args:
        framework: whose files are written; None: no framework's.
        was: a plan and the stack that prices it.
        now: likewise.
    """
    before, after = (_keys(framework, plan, stack) for plan, stack in (was, now))
    if before is None or after is None or framework is None:
        return ()
    dash = DASHES if framework.name == "megatron" else ""
    return tuple(
        FlagChange(dash + key, _text(before.get(key)), _text(after.get(key)))
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
    )


def _keys(framework: Framework | None, plan: Plan, stack: StackSpec) -> Mapping[str, Any] | None:
    if framework is None or framework.write is None:
        return None
    try:
        files = framework.write(exportable(plan, stack))
    except ShardwrightError:  # a model that its files do not describe
        return None
    name = framework.main_file
    return framework_file(files[name], name).keys


def _text(value: Any) -> str:
    return NOTHING if value is None else str(value)
