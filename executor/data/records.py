"""Records of tasks other than next tokens: hidden tokens, images.

Which record a sample has depends on the seed and its number only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...spec.errors import InputError
from ...spec.model.layers import PatchLayer
from ...spec.plan.plan import Plan
from .tasks import Batch, class_count, plan_task
from .text import RandomBatches, TextBatches, load_tokens

MASK_SHARE = 0.15
MASKED, REPLACED = 0.8, 0.9
"""Of the hidden tokens 80 % are masked and 10 % replaced; the rest stay (Devlin et al., 2019)."""


class MaskedTokens:
    """Records of an encoder: tokens of which 15 % are hidden, then the same tokens as they were.

    Args:
        tokens: gives (seq + 1,) tokens, of which the last is left out.
        vocab: of the model; its last number stands for a masked token.
        global_batch: samples of a step.
        seed: of what is hidden.
    """

    def __init__(self, tokens: Batch, vocab: int, global_batch: int, seed: int) -> None:
        self.tokens, self.vocab = tokens, vocab
        self.global_batch, self.seed = global_batch, seed

    def __call__(self, step: int, sample: int) -> Tensor:
        """The record of the ``sample``-th sample of optimizer step ``step``."""
        whole = self.tokens(step, sample)[:-1].numpy()
        number = step * self.global_batch + sample
        source = np.random.default_rng([self.seed, number])
        hidden = source.random(len(whole)) < MASK_SHARE
        fate = source.random(len(whole))
        others = source.integers(0, self.vocab, len(whole))
        seen = np.where(hidden & (fate < MASKED), self.vocab - 1, whole)
        seen = np.where(hidden & (fate >= MASKED) & (fate < REPLACED), others, seen)
        return torch.from_numpy(np.concatenate((seen, whole)))


class RandomImages:
    """Records of images: random classes and pixels by seed."""

    def __init__(self, values: int, classes: int, global_batch: int, seed: int) -> None:
        self.values, self.classes = values, classes
        self.global_batch, self.seed = global_batch, seed

    def __call__(self, step: int, sample: int) -> Tensor:
        """The record of the ``sample``-th sample of optimizer step ``step``."""
        number = step * self.global_batch + sample
        source = np.random.default_rng([self.seed, number])
        label = source.integers(0, self.classes, 1)
        return torch.from_numpy(np.concatenate((label, source.integers(0, 256, self.values))))


class StoredImages:
    """Records of images on disk, in an order shuffled anew by the seed in every epoch.

    Args:
        folder: holds ``images.npy`` (images, channels, side, side) uint8 and ``classes.npy``.
        layer: whose images.
        classes: of the model.
        global_batch: samples of a step.
        seed: of the order.

    Raises:
        InputError: arrays that are not there or do not fit the model.
    """

    def __init__(
        self, folder: Path, layer: PatchLayer, classes: int, global_batch: int, seed: int
    ) -> None:
        self.images, self.labels = _array(folder, "images"), _array(folder, "classes")
        shape = (len(self.labels), layer.channels, layer.image, layer.image)
        if self.images.shape != shape or self.images.dtype != np.uint8 or not len(self.labels):
            given = f"images.npy of {self.images.dtype} {self.images.shape}"
            raise InputError("--data", given, f"uint8 {shape}, as classes.npy and the model say")
        integer = self.labels.ndim == 1 and np.issubdtype(self.labels.dtype, np.integer)
        if not integer or self.labels.min() < 0 or self.labels.max() >= classes:
            raise InputError("--data", "classes.npy", f"whole numbers from 0 to {classes - 1}")
        self.global_batch, self.seed = global_batch, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def __call__(self, step: int, sample: int) -> Tensor:
        """The record of the ``sample``-th sample of optimizer step ``step``."""
        epoch, place = divmod(step * self.global_batch + sample, len(self.labels))
        if self._order[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            self._order = (epoch, generator.permutation(len(self.labels)))
        number = int(self._order[1][place])
        label, image = self.labels[number], self.images[number]
        row = np.concatenate(([label], image.reshape(-1))).astype(np.int64)
        return torch.from_numpy(row)


def _array(folder: Path, name: str) -> np.ndarray:
    try:
        found: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        allowed = f"a folder with images.npy and classes.npy ({name}.npy cannot be read)"
        raise InputError("--data", str(folder), allowed) from None
    return found


def random_batches(plan: Plan, seed: int) -> Batch:
    """Random records for a plan's model, by seed."""
    task, sizes = plan_task(plan), (plan.workload.global_batch, seed)
    if task.patches is not None:
        return RandomImages(task.record - 1, class_count(plan.model), *sizes)
    tokens = RandomBatches(plan.model.vocab, task.tokens, *sizes)
    return _hidden(plan, tokens, seed)


def data_batches(plan: Plan, data: Path | None, tokenizer: Path | None, seed: int) -> Batch:
    """The records of a plan's model from text or images; random images where none are given.

    Args:
        plan: whose model and batch.
        data: text file or folder of them (None: the standard library's sources); for images a
            folder of arrays.
        tokenizer: a ``tokenizer.json``, or None.
        seed: of the order.

    Raises:
        InputError: data or tokenizer that cannot be used.
    """
    task, batch = plan_task(plan), plan.workload.global_batch
    if task.patches is not None:
        if data is None:
            return random_batches(plan, seed)
        return StoredImages(data, task.patches, class_count(plan.model), batch, seed)
    tokens = load_tokens(plan.model.vocab, data, tokenizer)
    return _hidden(plan, TextBatches(tokens, task.tokens, batch, seed), seed)


def _hidden(plan: Plan, tokens: Batch, seed: int) -> Batch:
    """``tokens`` as records of the plan's task."""
    if plan_task(plan).kind != "hidden tokens":
        return tokens
    return MaskedTokens(tokens, plan.model.vocab, plan.workload.global_batch, seed)


__all__ = ["MaskedTokens", "RandomImages", "StoredImages", "data_batches", "random_batches"]
