"""Initial weights of a run, from any checkpoint, and its export for transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ..checkpoint.foreign.look import is_transformers
from ..checkpoint.foreign.weights import ForeignWeights
from ..checkpoint.storage.far_path import FarPath, is_url
from ..checkpoint.storage.paths import CheckpointPath, checkpoint_path
from ..data.prepared import is_prepared
from ..data.token_files import is_token_file
from ..engine.engine import Engine
from ..huggingface.config import config_for
from ..huggingface.reader import HuggingFaceCheckpoint
from ..huggingface.save import save_adapters, save_hf
from ..huggingface.target import check_adapters, check_target
from ..huggingface.tokenizer import TOKENIZER_NAME, TokenizerFiles, tokenizer_files
from ..stage.weight_source import WeightSource


class RunEndpoints:
    """Source of initial weights and target of trained ones.

    Args:
        rank: rank 0 writes.
        init_from: folder of a checkpoint of any kind to read.
        save_hf: folder to write.
        tokenizer: ``tokenizer.json`` given by the user.
        data: text of the run, of which a tokenizer may be trained; None for the usual text.
        reads_text: False where the samples are no text, so that no tokenizer is trained.

    Raises:
        InputError: a checkpoint of another model, or a folder that cannot be written.
        NotBuiltError: a model that transformers has no class for.
    """

    def __init__(
        self,
        plan: Plan,
        rank: int,
        init_from: str | None,
        save_hf: str | None,
        tokenizer: str | None,
        data: str | None = None,
        reads_text: bool = True,
    ) -> None:
        model, seq_len = plan.model, plan.workload.seq_len
        self._source: HuggingFaceCheckpoint | ForeignWeights | None = None
        if init_from is not None:
            self._source = _source_of(checkpoint_path(init_from), plan)
        self._target = None if save_hf is None else Path(save_hf)
        self._tokenizer = None if tokenizer is None else Path(tokenizer)
        self._data = None if data is None else Path(data)
        self._reads_text = reads_text
        if self._target is not None:
            check_adapters(plan, init_from, save_hf)
        if self._target is not None and rank == 0:
            check_target(self._target, "--save-hf")
        self._config: Mapping[str, Any] | None = None
        if isinstance(self._source, HuggingFaceCheckpoint):
            self._config = self._source.config
        elif self._target is not None:
            self._config = config_for(model, seq_len)

    @property
    def weight_source(self) -> WeightSource | None:
        """Source of the initial weights; None for random ones by seed."""
        return self._source

    def facts(self) -> dict[str, str]:
        """Facts that all ranks must agree on."""
        digest = "none" if self._source is None else self._source.digest()
        return {"checkpoint (--init-from)": digest}

    def save(self, engine: Engine) -> None:
        """Write the final weights if requested. Collective over the world."""
        if self._target is None:
            return
        folder = self._folder
        lora = engine.plan.workload.adapters
        tokenizer = None if engine.process_groups.rank else self._tokenizer_files(engine.plan)
        if lora is None:
            save_hf(engine, self._target, self._config, tokenizer)
        elif folder is not None and self._config is not None:
            save_adapters(engine, self._target, lora, self._config, folder, tokenizer)

    @property
    def _folder(self) -> Path | None:
        """Folder of the initial weights; None for those by URL, with no files to copy."""
        folder = None if self._source is None else self._source.folder
        return folder if isinstance(folder, Path) else None

    def _tokenizer_files(self, plan: Plan) -> TokenizerFiles:
        return tokenizer_files(
            plan.model.vocab,
            plan.workload.seq_len,
            self._data,
            self._tokenizer,
            self._folder,
            self._reads_text,
        )


def _source_of(folder: CheckpointPath, plan: Plan) -> HuggingFaceCheckpoint | ForeignWeights:
    """The weights in a folder of transformers, or of any other kind."""
    model, seq_len = plan.model, plan.workload.seq_len
    if is_transformers(folder):
        return HuggingFaceCheckpoint(folder, model, seq_len)
    return ForeignWeights(folder, model, seq_len)


def default_tokenizer(
    data: Path | None, tokenizer: str | None, init_from: str | None
) -> Path | None:
    """The run's tokenizer: the user's, else the checkpoint's, else none.

    Token files need none.

    Raises:
        InputError: the checkpoint's is by URL.
    """
    if tokenizer is not None:
        return Path(tokenizer)
    if init_from is None or is_token_file(data) or is_prepared(data):
        return None
    if is_url(init_from):
        if (FarPath(init_from) / TOKENIZER_NAME).exists():
            allowed = f"a copy of {init_from}/{TOKENIZER_NAME} on this machine"
            raise InputError("--tokenizer", "nothing", allowed)
        return None
    saved_tokenizer = Path(init_from) / TOKENIZER_NAME
    return saved_tokenizer if saved_tokenizer.is_file() else None
