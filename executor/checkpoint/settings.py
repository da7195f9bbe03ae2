"""Settings of a run's checkpoints; loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.errors import InputError
from .storage.folders import step_folders, step_of
from .storage.paths import CheckpointPath, checkpoint_path

EVERY, KEEP = 100, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Saving and resuming of a run.

    ``folder``: a path or a URL, None for no checkpoints; one every ``every`` steps and after the
    last, of which the newest ``keep`` stay. ``resume``: a folder of checkpoints, or one of them.
    ``wait``: steps wait for writing. ``restarted``: after a failure, so ``folder`` holds this run's
    own checkpoints. ``new_stage``: with weights and moments of ``resume`` alone, steps counted
    anew.
    """

    folder: str | None = None
    every: int | None = None
    keep: int = KEEP
    resume: str | None = None
    wait: bool = False
    restarted: bool = False
    new_stage: bool = False

    def __post_init__(self) -> None:
        if self.every is not None and self.folder is None:
            raise InputError("--every", self.every, "with --checkpoint, which says where")
        if self.new_stage and self.resume is None:
            raise InputError("--new-stage", "nothing", "with --resume, which says whence")
        if self.every is not None and self.every < 1:
            raise InputError("--every", self.every, "at least 1", 1)
        if self.keep < 1:
            raise InputError("--keep", self.keep, "at least 1", 1)

    @property
    def source(self) -> CheckpointPath | None:
        """Checkpoint to resume from; None to start anew.

        Raises:
            InputError: the folder to save in has checkpoints of another run.
        """
        resume = None if self.resume is None else checkpoint_path(self.resume)
        folder = None if self.folder is None else checkpoint_path(self.folder)
        saved = [] if folder is None else step_folders(folder)
        if folder is None or not saved:
            return resume
        if self.restarted:
            return folder
        own = () if resume is None else (resume.resolve(), resume.resolve().parent)
        if self.new_stage or folder.resolve() not in own:
            step = step_of(saved[0])
            allowed = f"an empty folder, or --resume {folder} to go on (it has step {step})"
            raise InputError("--checkpoint", str(folder), allowed)
        return resume
