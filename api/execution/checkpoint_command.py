"""``plan checkpoint``: what a checkpoint holds, or the same in another format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...spec.errors import InfeasibleError, InputError
from ..cli.output import check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console


def checkpoint_command(flags: dict[str, Any]) -> None:
    """Inspect or convert a checkpoint; end with 3 if it is damaged.

    Raises:
        InputError: no checkpoint, or flags that do not go together.
        RunError: the conversion failed.
    """
    from .checkpoint import checkpoint_document

    check_targets(json=flags["json_target"])
    if flags["path"] is None:
        raise InputError("PATH", "nothing", "a checkpoint's folder", "plan checkpoint ckpt/")
    document = checkpoint_document(flags["path"], flags["to"], flags["out"], flags["model"])

    def show(console: Console) -> None:
        from ..terminal.checkpoint import print_checkpoint

        print_checkpoint(console, document)

    emit(document, flags["json_target"], show)
    if document.get("damages"):
        raise SystemExit(InfeasibleError.exit_code)
