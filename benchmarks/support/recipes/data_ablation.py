"""A small language model on a duplicated and on a cleaned stream: signs of the losses."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from support.recipes.corpus import Records
from support.recipes.small_model import SmallModel, token_loss
from torch import Tensor

from shardwright.datasets.text_mining.families import keepers
from shardwright.datasets.text_mining.shingles import shingles

SEEDS = (0, 1, 2)
BYTES, CONTEXT, WIDTH, LAYERS, BATCH, STEPS = 256, 64, 96, 2, 32, 600
STREAM_BYTES, REPEATED_SHARE, REPEATED_BYTES = 1_200_000, 0.6, 40_000
HELD_OUT, LAST_STEPS = 60, 100


def streams(sources: Mapping[str, Records], seed: int) -> tuple[Any, Any, Any]:
    """Bytes of a stream that mostly repeats little text, of the cleaned one, and held-out ones."""
    draw = random.Random(seed)
    texts = [record["text"] for record in sources["library"] if len(record["text"]) > 2000]
    draw.shuffle(texts)
    held, rest = "".join(texts[:HELD_OUT]), texts[HELD_OUT:]
    few, size = [], 0
    while size < REPEATED_BYTES:
        few.append(rest.pop()[:8000])
        size += len(few[-1])
    repeated: list[str] = []
    while sum(map(len, repeated)) < REPEATED_SHARE * STREAM_BYTES:
        repeated.append(draw.choice(few))
    documents = [*repeated, *rest]
    sets = [shingles(text, 5) for text in documents]
    pairs = [
        (one, other)
        for one in range(len(repeated))
        for other in range(one + 1, len(repeated))
        if len(sets[one]) == len(sets[other]) and (sets[one] == sets[other]).all()
    ]
    lengths = np.array([len(text) for text in documents])
    keeper = keepers(np.array(pairs), lengths, [text.encode() for text in documents])
    cleaned = [text for n, text in enumerate(documents) if keeper[n] == n]
    fresh = "".join(rest)[: int((1 - REPEATED_SHARE) * STREAM_BYTES)]
    return (
        _bytes("".join(repeated) + fresh),
        _bytes("".join(cleaned)[:STREAM_BYTES]),
        _bytes(held),
    )


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


def losses(stream: Tensor, held: Tensor, seed: int) -> tuple[float, float]:
    """Training loss of the last steps, and held-out loss."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = SmallModel(BYTES, CONTEXT, WIDTH, LAYERS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw = torch.Generator().manual_seed(seed)
    last = []
    for step in range(STEPS):
        loss = token_loss(model, _batch(stream, draw)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= STEPS - LAST_STEPS:
            last.append(float(loss.detach()))
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        rest = [float(token_loss(model, _batch(held, draw)).mean()) for _ in range(30)]
    return sum(last) / len(last), sum(rest) / len(rest)


def _batch(stream: Tensor, draw: torch.Generator) -> Tensor:
    starts = torch.randint(0, len(stream) - CONTEXT - 1, (BATCH,), generator=draw)
    return torch.stack([stream[s : s + CONTEXT + 1] for s in starts.tolist()])


def both_losses(sources: Mapping[str, Records], seed: int) -> dict[str, list[float]]:
    """``training`` and ``held_out`` loss, each on the duplicated and on the cleaned stream."""
    repeated, cleaned, held = streams(sources, seed)
    before, after = losses(repeated, held, seed), losses(cleaned, held, seed)
    return {"training": [before[0], after[0]], "held_out": [before[1], after[1]]}
