"""``plan doctor``: what is measured, learned and assumed of a model on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .output import check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console


def doctor_command(given: dict[str, Any]) -> None:
    """Look into the pair that was given.

    Raises:
        InputError: no usable model, cluster or stack.
    """
    from ..doctor.document import doctor_document

    check_targets(json=given["json_target"])
    names = ("model", "cluster", "stack", "calibration")
    document = doctor_document(*(given[name] for name in names))

    def show(out: Console) -> None:
        from ..terminal.doctor import print_doctor

        print_doctor(out, document)

    emit(document, given["json_target"], show)
