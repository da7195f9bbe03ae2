"""``plan diagnose``: a measured run explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....spec.errors import InputError
from ..flags import typed_inputs
from ..output import check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console


def diagnose_command(flags: dict[str, Any]) -> None:
    """Explain the run of the flags.

    Raises:
        InputError: no usable log, configuration, figure or trace.
    """
    from ...diagnose.diagnosis import diagnose
    from ...diagnose.measured_run import RunQuestion
    from ...planning.uniform_plan import strategy_flags
    from ...problem.resolve import Inputs

    check_targets(json=flags["json_target"])
    if flags["path"] is None:
        near = "plan diagnose train.log --cluster 8x8xH100-80GB"
        raise InputError("LOG", "nothing", "a training log, or a configuration", near)
    question = RunQuestion(
        path=flags["path"],
        config=flags["config"],
        framework=flags["source"],
        given=Inputs(**typed_inputs(flags)),
        strategy={name: flags.get(name) for name in strategy_flags()},
        measured_s=flags["measured_step"],
        tokens_per_s=flags["tokens_per_s"],
        risk=flags["oom_risk"],
    )
    found = diagnose(question, flags["trace"])

    def show(out: Console) -> None:
        from ...terminal.diagnosis import print_diagnosis

        print_diagnosis(out, found)

    emit(found.to_document(), flags["json_target"], show)
