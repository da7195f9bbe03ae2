"""``plan export --to FRAMEWORK``: a plan as the files that a framework reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....spec.errors import InputError
from ..output import emit, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from ...frameworks.export_plan import ExportedPlan


def export_files(flags: dict[str, Any]) -> None:
    """Write a framework's files, and say what they cannot.

    Raises:
        InputError: no usable plan or folder, or a plan that the framework has no words for.
    """
    from ...frameworks.export_plan import export_plan
    from ...frameworks.shipped import framework_named
    from ...problem.resolve import Inputs, plan_pricing
    from ..flags import typed_inputs
    from .files import plan_document

    framework = framework_named(flags["to"], "--to", written=True)
    folder = files_folder(flags)
    document = plan_document(flags["plan_file"], flags)
    inputs = document.inputs(Inputs(**typed_inputs(flags)))
    stack, measured, _ = plan_pricing(document.plan, inputs)
    made = export_plan(document.plan, stack, measured, framework)
    started = _start_files(made, flags["launcher"])
    folder.mkdir(exist_ok=True)
    for name, text in {**made.files, **started}.items():
        write_file(str(folder / name), text)

    def show(out: Console) -> None:
        from ...terminal.frameworks import print_exported

        print_exported(out, made, str(folder), tuple(started))

    answer = made.to_document() | ({"launch_files": started} if started else {})
    emit(answer, flags["json_target"], show)


def _start_files(made: ExportedPlan, launcher: str | None) -> dict[str, str]:
    from ...launch_files.framework_script import framework_launch_files

    if launcher is None:
        return {}
    if not made.framework.by_node:
        allowed = f"no --launcher: {made.framework.title} starts the ranks of all nodes itself"
        raise InputError("--launcher", launcher, allowed)
    group = made.plan.cluster.groups[0]
    return framework_launch_files(made.launch, made.files, group, launcher)


def files_folder(flags: dict[str, Any]) -> Path:
    """The folder to write in: as given, else beside the plan.

    Raises:
        InputError: a file of that name, or no folder around it.
    """
    if flags["losses"] is not None:
        raise InputError("--losses", flags["losses"], "nothing beside files", "--to html")
    usual = Path(flags["plan_file"]).with_suffix("").name + f"-{flags['to']}"
    given = flags["out"] or str(Path(flags["plan_file"]).with_name(usual))
    folder = Path(given).expanduser()
    if given == "-" or folder.is_file() or not folder.parent.is_dir():
        raise InputError("--out", given, "a folder, in one that exists", usual)
    return folder
