"""Records of tasks other than next tokens: masked tokens, images.

A sample's record depends only on the seed and its number.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...spec.errors import InputError
from ...spec.files import require_regular
from ...spec.model.layers import PatchLayer
from ...spec.plan.plan import Plan
from .prepared import is_prepared, prepared_batches
from .tasks import Batch, class_count, plan_task
from .text import RandomBatches, TextBatches, load_tokens

MASK_SHARE = 0.15
MASKED, REPLACED = 0.8, 0.9
"""Of the hidden tokens 80 % are masked and 10 % replaced; the rest stay (Devlin et al., 2019)."""


class MaskedTokens:
    """Encoder records: tokens with 15 % masked, then the original tokens.

    Args:
        tokens: (seq + 1,) tokens of a sample, of which the last is left out.
        vocab: of the model; its last number stands for a masked token.
        seed: of the hidden tokens.
    """

    def __init__(self, tokens: Batch, vocab: int, global_batch: int, seed: int) -> None:
        self.tokens, self.vocab = tokens, vocab
        self.global_batch, self.seed = global_batch, seed

    def __call__(self, step: int, sample: int) -> Tensor:
        """Record of sample ``sample`` of optimizer step ``step``."""
        tokens = self.tokens(step, sample)[:-1].numpy()
        number = step * self.global_batch + sample
        generator = np.random.default_rng([self.seed, number])
        hidden = generator.random(len(tokens)) < MASK_SHARE
        fate = generator.random(len(tokens))
        others = generator.integers(0, self.vocab, len(tokens))
        masked = np.where(hidden & (fate < MASKED), self.vocab - 1, tokens)
        masked = np.where(hidden & (fate >= MASKED) & (fate < REPLACED), others, masked)
        return torch.from_numpy(np.concatenate((masked, tokens)))


class RandomImages:
    """Image records: random classes and pixels by seed."""

    def __init__(self, values: int, classes: int, global_batch: int, seed: int) -> None:
        self.values, self.classes = values, classes
        self.global_batch, self.seed = global_batch, seed

    def __call__(self, step: int, sample: int) -> Tensor:
        """Record of sample ``sample`` of optimizer step ``step``."""
        number = step * self.global_batch + sample
        generator = np.random.default_rng([self.seed, number])
        label = generator.integers(0, self.classes, 1)
        return torch.from_numpy(np.concatenate((label, generator.integers(0, 256, self.values))))


class StoredImages:
    """Records of images on disk, reshuffled by seed every epoch.

    Args:
        folder: holds ``images.npy`` (images, channels, side, side) uint8 and ``classes.npy``.

    Raises:
        InputError: arrays that are not there or do not fit the model.
    """

    def __init__(
        self, folder: Path, layer: PatchLayer, classes: int, global_batch: int, seed: int
    ) -> None:
        self.images, self.labels = _array(folder, "images"), _array(folder, "classes")
        shape = (len(self.labels), layer.channels, layer.image, layer.image)
        if self.images.shape != shape or self.images.dtype != np.uint8 or not len(self.labels):
            stored = f"images.npy of {self.images.dtype} {self.images.shape}"
            raise InputError("--data", stored, f"uint8 {shape}, as classes.npy and the model say")
        integer = self.labels.ndim == 1 and np.issubdtype(self.labels.dtype, np.integer)
        if not integer or self.labels.min() < 0 or self.labels.max() >= classes:
            raise InputError("--data", "classes.npy", f"whole numbers from 0 to {classes - 1}")
        self.global_batch, self.seed = global_batch, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def __call__(self, step: int, sample: int) -> Tensor:
        """Record of sample ``sample`` of optimizer step ``step``."""
        epoch, position = divmod(step * self.global_batch + sample, len(self.labels))
        if self._order[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            self._order = (epoch, generator.permutation(len(self.labels)))
        number = int(self._order[1][position])
        label, image = self.labels[number], self.images[number]
        row = np.concatenate(([label], image.reshape(-1))).astype(np.int64)
        return torch.from_numpy(row)


def _array(folder: Path, name: str) -> np.ndarray:
    try:
        require_regular(folder / f"{name}.npy", "an array of images")
        array: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    except (InputError, OSError, ValueError):
        allowed = f"a folder with images.npy and classes.npy ({name}.npy cannot be read)"
        raise InputError("--data", str(folder), allowed) from None
    return array


def random_batches(plan: Plan, seed: int) -> Batch:
    """Random records for a plan's model, by seed."""
    _require_no_lengths(plan, None)
    task, sizes = plan_task(plan), (plan.workload.global_batch, seed)
    if task.patches is not None:
        return RandomImages(task.record - 1, class_count(plan.model), *sizes)
    tokens = RandomBatches(plan.model.vocab, task.tokens, *sizes)
    return _hidden(plan, tokens, seed)


def data_batches(plan: Plan, data: Path | None, tokenizer: Path | None, seed: int) -> Batch:
    """Records of a plan's model from text, stored images or random images.

    ``data``: a text file or a folder of them (None: the standard library), prepared data, or a
    folder of image arrays.

    Raises:
        InputError: data or tokenizer that cannot be used.
    """
    task, batch = plan_task(plan), plan.workload.global_batch
    if task.patches is not None:
        if data is None:
            return random_batches(plan, seed)
        return StoredImages(data, task.patches, class_count(plan.model), batch, seed)
    if data is not None and is_prepared(data):
        if tokenizer is not None:
            allowed = "none: the data are tokens already"
            raise InputError("--tokenizer", str(tokenizer), allowed)
        lengths = plan.workload.lengths
        prepared = prepared_batches(data, plan.model.vocab, task.tokens, batch, seed, lengths)
        return _hidden(plan, prepared, seed)
    _require_no_lengths(plan, data)
    tokens = load_tokens(plan.model.vocab, data, tokenizer)
    return _hidden(plan, TextBatches(tokens, task.tokens, batch, seed), seed)


def _require_no_lengths(plan: Plan, data: Path | None) -> None:
    """Refuse data without documents' bounds for a plan of documents' lengths.

    Raises:
        InputError: such a plan.
    """
    if (lengths := plan.workload.lengths) is not None:
        given = "nothing" if data is None else str(data)
        raise InputError(
            "--data", given, f"plan data's folder of the plan's recipe {lengths.recipe}"
        )


def _hidden(plan: Plan, tokens: Batch, seed: int) -> Batch:
    if plan_task(plan).kind != "hidden tokens":
        return tokens
    return MaskedTokens(tokens, plan.model.vocab, plan.workload.global_batch, seed)


__all__ = ["MaskedTokens", "RandomImages", "StoredImages", "data_batches", "random_batches"]
