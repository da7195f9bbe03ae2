"""A run's checkpoints: resuming, saving at intervals, reporting both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ... import __version__
from ...spec.codec import content_hash, to_document
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from .. import torch_compat
from ..engine.engine import Engine
from ..engine.optimizer_step import AdamWOptions
from ..engine.optimizers import optimizer_document
from ..launch.rank_context import RankContext
from .changed_settings import changed_settings
from .engine_state import EngineRestore, collect_state
from .loader import FoundCheckpoint, load_slices, newest_valid
from .manifest import RunFacts
from .model_difference import model_difference
from .saver import Saver
from .settings import EVERY, CheckpointSettings


def run_facts(plan: Plan, seed: int, text: str, adamw: AdamWOptions) -> RunFacts:
    """Facts of a run for its checkpoints."""
    workload = plan.workload
    return RunFacts(
        plan=plan.hash,
        model=content_hash(plan.model),
        seed=seed,
        text=text,
        global_batch=workload.global_batch,
        seq_len=workload.seq_len,
        ranks=sum(stage.device_count for stage in plan.program.stages),
        optimizer=optimizer_document(workload.optimizer, adamw),
        versions={"shardwright": __version__, "torch": torch_compat.version()},
        model_document=to_document(plan.model),
        workload=asdict(workload),
    )


class CheckpointSession:
    """A run's checkpoints on one rank.

    Args:
        engine: not yet stepped.
    """

    def __init__(
        self, engine: Engine, context: RankContext, settings: CheckpointSettings, run: RunFacts
    ) -> None:
        self.engine, self.context, self.settings, self.run = engine, context, settings, run
        self.resumed: FoundCheckpoint | None = None
        self._saver: Saver | None = None
        self._announced: set[int] = set()

    def begin(self, steps: int, spare: bool = False) -> None:
        """Resume from a checkpoint if requested, and prepare to save. Collective.

        Args:
            steps: last step of the run.
            spare: True to keep the checkpoint that the run resumes from.

        Raises:
            InputError: the checkpoint is of another model, text or batch, or is as far already.
            RunError: no checkpoint is valid.
        """
        settings, context = self.settings, self.context
        source = settings.source
        if source is not None:
            self.resumed = newest_valid(source, context.rank, context.device, self._emit_note)
            self._restore(self.resumed, steps)
        if settings.folder is not None:
            folder = Path(settings.folder)
            self._saver = Saver(
                folder, settings.keep, self.run, context.rank, context.device, settings.wait
            )
            if spare and self.resumed is not None:
                self._saver.protected = self.resumed.folder

    def _restore(self, checkpoint: FoundCheckpoint, steps: int) -> None:
        saved = checkpoint.manifest
        _require_same(saved.run, self.run)
        if saved.step >= steps:
            allowed = f"more than {saved.step}, the step of {checkpoint.folder.name}"
            raise InputError("--steps", steps, allowed, saved.step + 1)
        if self.context.rank == 0:
            for change in changed_settings(saved.run, self.run):
                self._emit_note(change)
        restored = EngineRestore(self.engine, saved)
        for parts in restored.fill_rounds:
            load_slices(checkpoint, parts)
        restored.apply()
        if self.context.rank == 0:
            note = "" if saved.run.plan == self.run.plan else ", saved under another plan"
            self._emit_note(f"going on after step {saved.step} from {checkpoint.folder}{note}")
            for name in restored.unused():
                self._emit_note(f"what {name} kept is not taken over: the plan does not hold it")

    def after_step(self, step: int, last: bool) -> None:
        """Save if a checkpoint is due."""
        if self._saver is None:
            return
        self._emit_commits(self._saver)
        if last or step % (self.settings.every or EVERY) == 0:
            self._saver.save(step, collect_state(self.engine))

    def finish(self) -> None:
        """Wait for the last checkpoint.

        Raises:
            RunError: it could not be written.
        """
        if self._saver is not None:
            self._saver.wait_written()
            self._emit_commits(self._saver)
            self._saver.close()

    def _emit_commits(self, saver: Saver) -> None:
        if self.context.rank:
            return
        steps = [*saver.committed, *([saver.step] if saver.is_written() else [])]
        for step in steps:
            if step not in self._announced:
                self._announced.add(step)
                self.context.emit({"event": "checkpoint", "step": step})

    def _emit_note(self, text: str) -> None:
        self.context.emit({"event": "note", "text": text})

    def document(self) -> dict[str, Any] | None:
        """Checkpoints as JSON for the run's result; None without any."""
        if self.resumed is None and self._saver is None:
            return None
        document: dict[str, Any] = {}
        if self.resumed is not None:
            document["resumed"] = {
                "folder": str(self.resumed.folder),
                "step": self.resumed.manifest.step,
                "plan_hash": self.resumed.manifest.run.plan,
            }
        if self._saver is not None:
            document["saved"] = {
                "folder": str(self._saver.root),
                "steps": list(self._saver.committed),
            }
        return document


def _models(saved: RunFacts, current: RunFacts) -> tuple[str, str]:
    """Differing fields of the models; hashes if a checkpoint does not hold its model."""
    documents = (saved.model_document, current.model_document)
    if saved.model == current.model or documents[0] is None or documents[1] is None:
        return saved.model, current.model
    return model_difference(documents[0], documents[1])


def _require_same(saved: RunFacts, current: RunFacts) -> None:
    """Refuse to continue a different training.

    Raises:
        InputError: model, optimizer, text, seed or batch differ.
    """
    facts: Mapping[str, tuple[object, object]] = {
        "model": _models(saved, current),
        "--optimizer": (saved.optimizer["name"], current.optimizer["name"]),
        "--global-batch": (saved.global_batch, current.global_batch),
        "--seq-len": (saved.seq_len, current.seq_len),
        "--seed": (saved.seed, current.seed),
        "text (--data, --tokenizer)": (saved.text, current.text),
    }
    for name, (theirs, ours) in facts.items():
        if theirs != ours:
            raise InputError(name, ours, f"{theirs}, as in the checkpoint to resume")
