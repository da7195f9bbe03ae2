"""A run's checkpoints: resuming, saving at intervals, reporting both."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ... import __version__
from ...spec.codec import content_hash, to_document
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from .. import torch_compat
from ..engine.engine import Engine
from ..engine.optimizer_step import AdamWOptions
from ..engine.optimizers import optimizer_document
from ..launch.consistency import gather_json
from ..launch.rank_context import RankContext
from .changed_settings import changed_settings
from .engine_state import EngineRestore, collect_state
from .foreign.look import is_foreign
from .foreign.restore import changed_groups, restore_foreign
from .foreign.weights import ForeignWeights
from .integrity import Damage
from .loader import FoundCheckpoint, newest_valid
from .manifest import RunFacts
from .model_difference import model_difference
from .saver import Saver
from .settings import EVERY, CheckpointSettings
from .shared_reading import SharedReading
from .storage.paths import CheckpointPath, checkpoint_path


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
        self.foreign: ForeignWeights | None = None
        self.times: dict[str, Any] = {}
        """Seconds and bytes of saves and of the load; those of saves after :meth:`finish`."""
        self.bytes_read = 0
        """Bytes of tensors that this rank read from storage."""
        self._restored: EngineRestore | None = None
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
        if source is not None and is_foreign(source):
            self._restore_foreign(source, steps)
        elif source is not None:
            start_s = time.perf_counter()
            self.resumed = newest_valid(
                source,
                context.rank,
                context.device,
                self._emit_note,
                lambda checkpoint: self._restore(checkpoint, steps),
            )
            self._go_on(self.resumed)
            spent_s = time.perf_counter() - start_s
            rows = gather_json([spent_s, self.bytes_read], context.device)
            self.times["load_s"] = max(row[0] for row in rows)
            self.times["read_bytes"] = sum(row[1] for row in rows)
        if settings.folder is not None:
            folder = checkpoint_path(settings.folder)
            self._saver = Saver(
                folder, settings.keep, self.run, context.rank, context.device, settings.wait
            )
            if spare and self.resumed is not None:
                self._saver.protected = self.resumed.folder

    def _restore(self, checkpoint: FoundCheckpoint, steps: int) -> list[Damage]:
        """Take over a checkpoint's state; what this rank found damaged in it."""
        saved, new_stage = checkpoint.manifest, self.settings.new_stage
        _require_same(saved.run, self.run, new_stage)
        if not new_stage:
            self._require_later(saved.step, steps, checkpoint.folder)
        self._restored = EngineRestore(self.engine, saved, with_random=not new_stage)
        wanted = [row for parts in self._restored.fill_rounds for row in parts.items()]
        reading = SharedReading(checkpoint.folder, saved, wanted, self.context.device)
        found = reading.load()
        self.bytes_read = reading.bytes_read
        return found

    def _go_on(self, checkpoint: FoundCheckpoint) -> None:
        """Begin with the state that was taken over."""
        saved, new_stage, restored = checkpoint.manifest, self.settings.new_stage, self._restored
        if restored is None:
            raise RuntimeError("nothing was taken over")
        if self.context.rank == 0:
            for change in changed_settings(saved.run, self.run):
                self._emit_note(change)
        restored.apply()
        if new_stage:
            self._begin_stage(checkpoint.folder, saved.step, saved.run.plan)
            return
        if self.context.rank == 0:
            note = "" if saved.run.plan == self.run.plan else ", saved under another plan"
            self._emit_note(f"going on after step {saved.step} from {checkpoint.folder}{note}")
            for name in restored.unused():
                self._emit_note(f"what {name} kept is not taken over: the plan does not hold it")

    def _restore_foreign(self, folder: CheckpointPath, steps: int) -> None:
        """Go on from another framework's checkpoint."""
        model, workload = self.engine.plan.model, self.engine.plan.workload
        source = ForeignWeights(folder, model, workload.seq_len, "--resume")
        step = restore_foreign(self.engine, source)
        if not self.settings.new_stage:
            self._require_later(step, steps, folder)
        self.foreign = source
        if self.context.rank == 0:
            for change in changed_groups(source, self.run):
                self._emit_note(change)
            note = f"{source.source.kind}, names of {source.dialect.name}"
            self._emit_note(f"going on after step {step} from {folder} ({note})")
        self._note_previous(folder, step, source.source.kind)
        if self.settings.new_stage:
            self.engine.step_index = 0

    def _begin_stage(self, folder: CheckpointPath, step: int, plan: str) -> None:
        """Count steps anew, with the weights and moments of ``folder``."""
        self.engine.step_index = 0
        self._note_previous(folder, step, plan)
        if self.context.rank == 0:
            self._emit_note(f"a new stage from step {step} of {folder}: weights and moments")

    def _note_previous(self, folder: CheckpointPath, step: int, plan: str) -> None:
        """Keep whence the run goes on, for its manifests."""
        self.run = replace(self.run, previous={"folder": str(folder), "step": step, "of": plan})

    @staticmethod
    def _require_later(step: int, steps: int, folder: CheckpointPath) -> None:
        if step >= steps:
            allowed = f"more than {step}, the step of {folder.name}"
            raise InputError("--steps", steps, allowed, step + 1)

    def before_update(self) -> None:
        """Wait until a save no longer needs the state that an update changes."""
        if self._saver is not None:
            self._saver.before_update()

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
            self.times |= self._saver.times.document(self.context.device)

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

    @property
    def begun_at(self) -> FoundCheckpoint | ForeignWeights | None:
        """What the run resumed from; None for a new one."""
        return self.resumed or self.foreign

    def document(self) -> dict[str, Any] | None:
        """Checkpoints as JSON for the run's result; None without any."""
        if self.resumed is None and self._saver is None and self.foreign is None:
            return None
        document: dict[str, Any] = {}
        if self.foreign is not None and self.run.previous is not None:
            document["resumed"] = {
                "folder": str(self.foreign.folder),
                "step": self.run.previous["step"],
                "kind": self.foreign.source.kind,
            }
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
        if self.times:
            document["measured"] = self.times
        return document


def _models(saved: RunFacts, current: RunFacts) -> tuple[str, str]:
    """Differing fields of the models; hashes if a checkpoint does not hold its model."""
    documents = (saved.model_document, current.model_document)
    if saved.model == current.model or documents[0] is None or documents[1] is None:
        return saved.model, current.model
    return model_difference(documents[0], documents[1])


def _require_same(saved: RunFacts, current: RunFacts, new_stage: bool) -> None:
    """Refuse to continue a different training; a new stage has another text and batch.

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
    kept = ("model", "--optimizer") if new_stage else tuple(facts)
    for name in kept:
        theirs, ours = facts[name]
        if theirs != ours:
            other = "" if name in ("model", "--optimizer") else "; --new-stage goes on with another"
            raise InputError(name, ours, f"{theirs}, as in the checkpoint to resume{other}")
