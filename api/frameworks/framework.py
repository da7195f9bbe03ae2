"""Framework: what a folder of this room gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .file_keys import FileKeys
from .framework_file import FrameworkFile
from .settings import Settings

if TYPE_CHECKING:
    from ...spec.cluster.stack_spec import StackSpec
    from ...spec.model.model_spec import ModelSpec
    from ...spec.plan.plan import Plan
    from .exportable import ExportablePlan
    from .nearest import Change, Price

    Layerwise = Callable[[ExportablePlan, StackSpec, Price], tuple[Plan, tuple[Change, ...]] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file to be read: its keys, the devices it is for, and the file itself."""

    keys: FileKeys
    devices: int
    file: FrameworkFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework whose files are read and, with ``write``, written.

    ``recognizes``: a file's keys are its. ``narrow``: its stack without what its files cannot say.
    ``says_model``: its files hold a model's sizes or name. ``other_stacks``: that its files may
    be for instead of ``stack``, as one that priced the plan. ``main_file`` is the one of those
    written that is read again, ``outside`` the flags that files leave to scripts. ``normal``: keys
    as ``read`` knows them. ``write`` gives text by file name, ``launch`` the command that starts
    the run from them. ``layerwise``, where files say a strategy for each layer: the nearest plan
    that they say so, under the whole stack, and what changes; None where there is none.
    ``by_node``: the launch line is for each node; False where one starts the ranks of all.
    """

    name: str
    title: str
    stack: str
    recognizes: Callable[[FrameworkFile], bool]
    read: Callable[[Reading], Settings]
    narrow: Callable[[StackSpec], StackSpec]
    says_model: Callable[[ModelSpec], bool]
    other_stacks: tuple[str, ...] = ()
    main_file: str = ""
    outside: tuple[str, ...] = ()
    normal: Callable[[FrameworkFile], Mapping[str, Any]] = lambda file: file.keys
    write: Callable[[ExportablePlan], Mapping[str, str]] | None = None
    launch: Callable[[ExportablePlan], str] | None = None
    layerwise: Layerwise | None = None
    by_node: bool = True

    def settings(self, file: FrameworkFile, devices: int) -> tuple[Settings, FileKeys]:
        """Settings of a file for so many devices, and its keys as read."""
        keys = FileKeys(self.normal(file), file.path, self.title)
        return self.read(Reading(keys=keys, devices=devices, file=file)), keys
