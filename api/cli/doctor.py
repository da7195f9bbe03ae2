"""``plan doctor``: sources of a prediction for a model on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .output import check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console


def doctor_command(flags: dict[str, Any]) -> None:
    """Report on a model and a cluster.

    Raises:
        InputError: no usable model, cluster or stack.
    """
    from ..doctor.document import doctor_document

    check_targets(json=flags["json_target"])
    names = ("model", "cluster", "stack", "calibration")
    document = doctor_document(*(flags[name] for name in names))

    def show(out: Console) -> None:
        from ..terminal.doctor import print_doctor

        print_doctor(out, document)

    emit(document, flags["json_target"], show)
