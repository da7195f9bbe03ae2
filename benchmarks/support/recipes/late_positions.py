"""Losses at late positions of windows, after training on windows by likeness or random ones.

Documents are parts of the library's files, of some hundred words, so that a window holds several.
A window is read whole: its documents see one another.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from support.recipes.corpus import Records
from support.recipes.recipe_runs import text_vectors
from support.recipes.small_model import IGNORED, SmallModel, token_loss
from torch import Tensor

from shardwright.datasets.pipelines.windows import Windows, likeness_windows, manifest
from shardwright.datasets.text_mining.fill_windows import fill_in_order

SEEDS = (0, 1, 2)
ORDERS = ("likeness", "random")
WINDOW, VOCAB, WIDTH, LAYERS, BATCH, STEPS = 512, 1024, 96, 2, 8, 120
FILES, HELD_FILES, PARTS, PART_WORDS = 500, 60, 8, 110
OTHER, END = 0, 1
"""Tokens of a rare word and of a document's end."""
WORD = re.compile(r"\w+|[^\w\s]")
TRIES = 12
"""Batches of the held-out windows at most."""


def late_losses(sources: Mapping[str, Records], seed: int, steps: int) -> dict[str, Any]:
    """Mean loss by quarter of the positions.

    Returns:
        By the training windows' order, then by the held-out windows': four numbers.
    """
    torch.set_num_threads(1)
    held, training = _documents(sources, seed)
    counts = Counter(word for words in training for word in words)
    common = [word for word, _ in counts.most_common(VOCAB - 2)]
    numbers = {word: place for place, word in enumerate(common, END + 1)}
    windows = {order: _windows(training, numbers, order, seed) for order in ORDERS}
    rest = {order: _windows(held, numbers, order, seed) for order in ORDERS}
    least = min(len(each) for each in windows.values())
    found = {}
    for order in ORDERS:
        model = _trained(windows[order][:least], seed, steps)
        found[order] = {other: _by_quarter(model, rest[other]) for other in ORDERS}
    return found


def _documents(sources: Mapping[str, Records], seed: int) -> tuple[list[list[str]], ...]:
    """Words of each held-out and each other document; no file is in both."""
    draw = random.Random(seed)
    texts = [r["text"] for r in sources["library"] if len(r["text"]) > 2000]
    draw.shuffle(texts)
    parts: list[list[list[str]]] = [[], []]
    for number, text in enumerate(texts[: HELD_FILES + FILES]):
        words = WORD.findall(text)
        for start in range(0, min(len(words), PARTS * PART_WORDS), PART_WORDS):
            parts[number >= HELD_FILES].append(words[start : start + PART_WORDS])
    for part in parts:
        draw.shuffle(part)
    return parts[0], parts[1]


def _windows(
    documents: Sequence[Sequence[str]], numbers: Mapping[str, int], order: str, seed: int
) -> Tensor:
    """Windows in random order, (windows, WINDOW + 1), what is unfilled IGNORED."""
    tokens = [[*(numbers.get(word, OTHER) for word in words), END] for words in documents]
    lengths = np.array([len(each) for each in tokens], dtype=np.int64)
    if order == "likeness":
        vectors = text_vectors([" ".join(words) for words in documents], seed)
        made = likeness_windows(lengths, vectors, Windows(tokens=WINDOW))
    else:
        made = fill_in_order(lengths, np.arange(len(lengths)), WINDOW)
    shown = manifest(*made, WINDOW)
    filled = np.full((int(shown["window"][-1]) + 1, WINDOW + 1), IGNORED, dtype=np.int64)
    filled[:, 0] = END
    for window, offset, document, start, length in zip(
        *(shown[key].tolist() for key in ("window", "offset", "document", "start", "length")),
        strict=True,
    ):
        filled[window, 1 + offset : 1 + offset + length] = tokens[document][start : start + length]
    return torch.from_numpy(np.random.default_rng(seed).permutation(filled))


def _trained(windows: Tensor, seed: int, steps: int) -> SmallModel:
    torch.manual_seed(seed)
    model = SmallModel(VOCAB, WINDOW, WIDTH, LAYERS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH) % len(windows)
        batch = windows[rows]
        loss = token_loss(model, batch).sum() / (batch[:, 1:] != IGNORED).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def _by_quarter(model: SmallModel, windows: Tensor) -> list[float]:
    total, count = torch.zeros(4), torch.zeros(4)
    for batch in windows[: TRIES * BATCH].split(BATCH):
        losses = token_loss(model, batch).view(len(batch), 4, WINDOW // 4)
        total += losses.sum(dim=(0, 2))
        count += (batch[:, 1:] != IGNORED).view(losses.shape).sum(dim=(0, 2))
    return [float(each) for each in total / count]
