"""Random problems of every axis: what no rule keeps out, several towers, long sequences."""

from __future__ import annotations

import random
from dataclasses import replace

from generators.samples import random_problem
from generators.tower_cases import encoder_decoder, images_in_text
from oracles.brute_force import SEQUENCE_PARALLELS, Restriction, Space

from shardwright.spec.model.model_spec import EmbeddingLayer, ModelSpec

LONG = 16384


def open_problem(seed: int, most_devices: int = 16) -> Space:
    """A space in which every axis has all values that are legal.

    Rings, Ulysses and other expert splits than the weights' own are whole only where a restriction
    speaks of them, so restrictions to every value do; a few problems have long sequences instead.
    """
    source = random.Random(f"open problem {seed}")
    base = random_problem(seed, most_devices)
    degrees = tuple(range(1, base.cluster.device_count + 1))
    whole = (
        Restriction(axis="cp", allowed=degrees),
        Restriction(axis="sp", allowed=SEQUENCE_PARALLELS),
        Restriction(axis="etp", allowed=degrees),
    )
    if source.random() < 0.2:
        base = replace(base, model=_towers(source))
    positions = [x.positions for x in base.model.layers() if isinstance(x, EmbeddingLayer)]
    if not any(positions) and source.random() < 0.3:
        return replace(base, workload=replace(base.workload, seq_len=LONG))
    return replace(base, restrictions=whole)


def _towers(source: random.Random) -> ModelSpec:
    """An encoder with its decoder, or images in a text, of one to four blocks each."""
    blocks = source.randint(1, 4), source.randint(1, 4)
    if source.random() < 0.5:
        return images_in_text(*blocks)
    return encoder_decoder(*blocks, tied=source.random() < 0.5)
