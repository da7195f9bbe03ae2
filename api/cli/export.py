"""``plan export``: a plan as a page, a picture or a framework's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...spec.errors import InputError, nearest_name
from .output import check_targets, emit, note, write_file
from .plan_file import priced_file

PAGES = ("html", "svg", "png")


def export_command(flags: dict[str, Any]) -> None:
    """Write the plan in a file as the named target.

    Raises:
        InputError: no usable plan, target or file.
    """
    from ..frameworks.shipped import WRITTEN
    from ..launch_files.launch_files import LAUNCHERS

    target, targets = flags["to"], (*PAGES, *LAUNCHERS, *WRITTEN)
    if target not in targets:
        shown = "nothing" if target is None else target
        near = nearest_name(shown, targets, count=1) or "plan export plan.json --to html"
        raise InputError("--to", shown, ", ".join(targets), near)
    file = flags["plan_file"]
    if file is None:
        raise InputError("PLAN.json", "nothing", "a plan file", "plan export plan.json --to html")
    if flags["launcher"] is not None and target not in WRITTEN:
        allowed = f"nothing beside --to {target}; a framework's files: {', '.join(WRITTEN)}"
        raise InputError("--launcher", flags["launcher"], allowed)
    if target in WRITTEN:
        from .frameworks.export_files import export_files

        export_files(flags)
        return
    if target in LAUNCHERS:
        _write_launch_files(flags)
        return
    if flags["json_target"] is not None:
        raise InputError("--json", flags["json_target"], "nothing beside a page or picture")
    out = flags["out"] or str(Path(file).with_suffix(f".{target}"))
    if out == "-":
        raise InputError("--out", out, "a file", str(Path(file).with_suffix(f".{target}")))
    if target != "html" and flags["losses"] is not None:
        raise InputError("--losses", flags["losses"], "nothing beside a picture", "--to html")
    check_targets(out=out)
    write_file(out, _page(flags) if target == "html" else _picture(flags))
    note(f"wrote {out}; it loads nothing from elsewhere")


def _write_launch_files(flags: dict[str, Any]) -> None:
    from ..launch_files.launch_files import launch_files
    from .frameworks.export_files import files_folder
    from .frameworks.files import plan_document

    folder = files_folder(flags)
    files = launch_files(plan_document(flags["plan_file"], flags).plan, flags["to"])
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        write_file(str(folder / name), text)
    emit({"files": list(files)}, flags["json_target"], lambda out: None)
    note(f"wrote {', '.join(files)} in {folder}; no run of ours has confirmed them on a cluster")


def _picture(flags: dict[str, Any]) -> str | bytes:
    from ..html.plan_drawing import plan_drawing
    from ..html.svg import drawing_svg

    drawing = plan_drawing(priced_file(flags["plan_file"], flags)[0].report)
    if flags["to"] == "svg":
        return drawing_svg(drawing)
    from ..notebook.plots.drawing import drawing_png

    try:
        return drawing_png(drawing)
    except InputError as error:
        near = f"plan export {flags['plan_file']} --to svg"
        raise InputError("--to", f"png with {error.given}", error.allowed, near) from None


def _page(flags: dict[str, Any]) -> str:
    from ...costmodel.explain.hidden_collectives import layer_overlaps
    from ..html.page_file import page_file
    from ..problem.report_pricing import download_document
    from ..views.report_view import report_view, step_trace

    simulated, rule = priced_file(flags["plan_file"], flags)
    plan = download_document(simulated.report.to_document())
    overlaps = layer_overlaps(simulated.report.plan, simulated.simulator)
    view, trace = report_view(simulated.report, rule, overlaps), step_trace(simulated)
    return page_file(view, plan, trace, _run(flags["plan_file"], flags["losses"]))


def _run(plan_file: str, losses: str | None) -> dict[str, Any] | None:
    """The run that the page shows: of a file of losses, else the report's own."""
    from ...spec.codec import parse_json, read_text
    from ..problem.plan_files import plan_text
    from ..views.run_view import run_of_document, run_of_file

    if losses is not None:
        return run_of_file(read_text(Path(losses), "a losses.csv"), losses)
    return run_of_document(parse_json(plan_text(plan_file), plan_file))
