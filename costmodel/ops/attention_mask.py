"""What a kernel has to know of an attention's scores: which are masked and what is done to them."""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.model.mixers import Attention, LatentAttention, Mask


@dataclass(frozen=True, slots=True)
class Scores:
    """The score matrix of one attention call.

    ``visible_keys`` is the most keys that a query sees; it is below the number of keys only with a
    sliding window. ``drops``: dropout follows the softmax.
    """

    mask: Mask
    visible_keys: int
    softcap: bool = False
    sinks: bool = False
    drops: bool = False

    def windowed(self, keys: int) -> bool:
        """Whether some earlier keys are out of reach too."""
        return self.mask == "causal" and self.visible_keys < keys


def scores_of(spec: Attention | LatentAttention, queries: int, keys: int) -> Scores:
    """The scores of ``queries`` tokens against ``keys`` tokens.

    A window in an attention of full mask reaches to both sides and is priced as the whole row.
    """
    if isinstance(spec, LatentAttention):
        return Scores("causal", keys)
    causal = spec.mask == "causal" and queries == keys
    visible_keys = min(spec.window or keys, keys) if causal else keys
    mask: Mask = "causal" if causal else "full"
    return Scores(mask, visible_keys, spec.softcap is not None, spec.sinks)
