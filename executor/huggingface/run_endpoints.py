"""Import from and export to Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...spec.plan.plan import Plan
from ..data.prepared import is_prepared
from ..data.token_files import is_token_file
from ..engine.engine import Engine
from ..stage.weight_source import WeightSource
from .config import config_for
from .reader import HuggingFaceCheckpoint
from .save import save_adapters, save_hf
from .target import check_adapters, check_target
from .tokenizer import TOKENIZER_NAME, TokenizerFiles, tokenizer_files


class RunEndpoints:
    """Source of initial weights and target of trained ones.

    Args:
        rank: rank 0 writes.
        init_from: folder of a checkpoint to read.
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
        self._source = None
        if init_from is not None:
            self._source = HuggingFaceCheckpoint(Path(init_from), model, seq_len)
        self._target = None if save_hf is None else Path(save_hf)
        self._tokenizer = None if tokenizer is None else Path(tokenizer)
        self._data = None if data is None else Path(data)
        self._reads_text = reads_text
        if self._target is not None:
            check_adapters(plan, init_from, save_hf)
        if self._target is not None and rank == 0:
            check_target(self._target, "--save-hf")
        self._config: Mapping[str, Any] | None = None
        if self._source is not None:
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
        folder = None if self._source is None else self._source.folder
        lora = engine.plan.workload.adapters
        tokenizer = None if engine.process_groups.rank else self._tokenizer_files(engine.plan)
        if lora is None:
            save_hf(engine, self._target, self._config, tokenizer)
        elif folder is not None and self._config is not None:
            save_adapters(engine, self._target, lora, self._config, folder, tokenizer)

    def _tokenizer_files(self, plan: Plan) -> TokenizerFiles:
        return tokenizer_files(
            plan.model.vocab,
            plan.workload.seq_len,
            self._data,
            self._tokenizer,
            None if self._source is None else self._source.folder,
            self._reads_text,
        )


def default_tokenizer(
    data: Path | None, tokenizer: str | None, init_from: str | None
) -> Path | None:
    """The run's tokenizer: the user's, else the checkpoint's, else none.

    Token files need none.
    """
    if tokenizer is not None:
        return Path(tokenizer)
    if init_from is None or is_token_file(data) or is_prepared(data):
        return None
    saved_tokenizer = Path(init_from) / TOKENIZER_NAME
    return saved_tokenizer if saved_tokenizer.is_file() else None
