"""Python handle of a checkpoint of any kind: ``sw.checkpoint(path)``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..execution.checkpoint import checkpoint_document


@dataclass(frozen=True, kw_only=True)
class CheckpointHandle:
    """A checkpoint that was looked into."""

    path: str | Path
    document: dict[str, Any]

    @property
    def is_whole(self) -> bool:
        """True if no byte is known to differ from what was written."""
        return not self.document["damages"]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that ``plan checkpoint --json`` writes."""
        return self.document

    def convert(self, to: str, out: str | Path, model: str | None = None) -> dict[str, Any]:
        """Write it as ``shardwright``, ``dcp`` or ``hf``.

        Args:
            to: the format.
            out: a folder that does not exist yet, or is empty.
            model: of the weights, by name or file, where the checkpoint does not say it.

        Raises:
            InputError: another model, or a folder that is not empty.
            RunError: the conversion failed.
        """
        return checkpoint_document(self.path, to, out, model)


def checkpoint(path: str | Path) -> CheckpointHandle:
    """Look into a checkpoint of any kind, in a folder or by URL.

    Raises:
        InputError: no checkpoint there.
        RunError: torch is missing.
    """
    return CheckpointHandle(path=path, document=checkpoint_document(path))
