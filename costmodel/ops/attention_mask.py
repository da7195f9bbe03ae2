"""Mask and modifiers of an attention's score matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...spec.model.mixers import Attention, LatentAttention, Mask


@dataclass(frozen=True, slots=True)
class Scores:
    """The score matrix of one attention call.

    ``visible_keys``: most keys that one query sees; fewer than the keys only with a sliding window,
    in chunks or behind an indexer. ``chunk``: tokens that attend to one another, None for all.
    ``drops``: dropout follows the softmax. ``documents``: mean tokens of a query's own document,
    None where a sample is one.
    """

    mask: Mask
    visible_keys: int
    softcap: bool = False
    sinks: bool = False
    drops: bool = False
    chunk: int | None = None
    documents: float | None = None

    def windowed(self, keys: int) -> bool:
        """True if earlier keys are masked, too."""
        return self.mask == "causal" and self.visible_keys < keys


def scores_of(
    spec: Attention | LatentAttention, queries: int, keys: int, documents: float | None = None
) -> Scores:
    """Scores of ``queries`` tokens against ``keys`` tokens.

    A window under a full mask covers both sides and is priced as the whole row. Of ``documents``,
    windows and chunks the narrowest counts.
    """
    scores = _of_one(spec, queries, keys)
    narrower = documents is not None and documents < scores.visible_keys
    if documents is None or not narrower or queries != keys or scores.mask != "causal":
        return scores
    return replace(scores, visible_keys=max(1, round(documents)), chunk=None, documents=documents)


def _of_one(spec: Attention | LatentAttention, queries: int, keys: int) -> Scores:
    if isinstance(spec, LatentAttention):
        chosen = keys if spec.indexer is None else min(spec.indexer.topk, keys)
        return Scores("causal", chosen)
    causal = spec.mask == "causal" and queries == keys
    if spec.chunk is not None and queries == keys and spec.chunk < keys:
        chunk = spec.chunk
        return Scores(spec.mask, chunk, spec.softcap is not None, spec.sinks, chunk=chunk)
    visible_keys = min(spec.window or keys, keys) if causal else keys
    mask: Mask = "causal" if causal else "full"
    return Scores(mask, visible_keys, spec.softcap is not None, spec.sinks)
