"""``plan size``: devices, days and cost of a training; fine-tunings on one cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ....spec.errors import InputError
from ..flags import typed_inputs
from ..output import check_targets, emit, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ...size.size_point import SizePoint


def size_command(flags: dict[str, Any]) -> None:
    """Size the training of the flags, or compare fine-tunings on a cluster.

    Raises:
        InputError: no model, tokens or device, or a limit that cannot be used.
    """
    check_targets(json=flags["json_target"], plot=flags["plot"])
    for name in ("model", "tokens"):
        if flags[name] is None:
            near = "plan size --model llama-3-70b --device H100-80GB --tokens 2T"
            raise InputError(f"--{name}", "nothing", "a model and a number of tokens", near)
    if (flags["device"] is None) == (flags["cluster"] is None):
        given = "nothing" if flags["device"] is None else "both --device and --cluster"
        allowed = "--device for a curve over their number, or --cluster for ways to fine-tune on it"
        raise InputError("--device", given, allowed, "H100-80GB")
    if flags["cluster"] is None:
        _curve(flags)
    else:
        _ways(flags)


def _inputs(flags: dict[str, Any]) -> Any:
    from ...problem.resolve import Inputs

    typed = typed_inputs(flags)
    typed.pop("prices", None)
    return Inputs(**typed)


def _curve(flags: dict[str, Any]) -> None:
    from ...size.training_size import SizeQuestion, training_size

    _refuse(flags, ("epochs",), "--device")
    if flags["plot"] and not flags["plot"].endswith(".svg"):
        raise InputError("--plot", flags["plot"], "a file ending in .svg", "size.svg")
    given = {} if flags["deadline"] is None else {"deadline_s": flags["deadline"]}
    given |= {} if flags["scaling"] is None else {"scaling": flags["scaling"]}
    question = SizeQuestion(
        device=flags["device"],
        tokens=flags["tokens"],
        inputs=_inputs(flags),
        within=flags["within"],
        budget=flags["budget"],
        prices=flags["prices"],
        **given,
    )
    found = training_size(question, _first_table(flags))
    if flags["plot"]:
        from ...html.size_svg import size_svg

        write_file(flags["plot"], size_svg(found.to_document()))

    def show(out: Console) -> None:
        from ...terminal.size import print_size

        print_size(out, found)

    emit(found.to_document(), flags["json_target"], show)


def _first_table(flags: dict[str, Any]) -> Any:
    """Shows the first table while the deciding points are searched, on a terminal."""
    is_limited = flags["within"] is not None or flags["budget"] is not None
    if not is_limited or flags["json_target"] == "-" or not sys.stderr.isatty():
        return None

    def show(points: Sequence[SizePoint]) -> None:
        from ...terminal.console import console
        from ...terminal.size import CurveHead, print_curve

        out = console(sys.stderr)
        is_weak = flags["scaling"] == "weak"
        head = CurveHead(str(flags["model"]), flags["device"], flags["tokens"], is_weak)
        print_curve(out, head, points)
        out.print("searching the points next to the limits …")

    return show


def _ways(flags: dict[str, Any]) -> None:
    from ...size.fine_tuning import FineTuningQuestion, fine_tuning

    _refuse(flags, ("within", "budget", "plot", "scaling"), "--cluster")
    question = FineTuningQuestion(
        inputs=_inputs(flags),
        tokens=flags["tokens"],
        epochs=1.0 if flags["epochs"] is None else flags["epochs"],
        prices=flags["prices"],
        deadline_s=flags["deadline"] or 0.0,
    )
    found = fine_tuning(question)

    def show(out: Console) -> None:
        from ...terminal.size import print_fine_tuning

        print_fine_tuning(out, found)

    emit(found.to_document(), flags["json_target"], show)


def _refuse(flags: dict[str, Any], names: tuple[str, ...], beside: str) -> None:
    for name in names:
        if flags[name] is not None:
            raise InputError(f"--{name}", flags[name], f"nothing beside {beside}")
