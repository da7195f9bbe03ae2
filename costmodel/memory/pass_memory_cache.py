"""Effects of passes on memory, each found once: they depend on layers and kind, not on prices.

The middle stages of a pipeline hold equal layers, and so do the plans of a sweep over rates.
"""

from __future__ import annotations

from ...spec.cluster.stack_spec import StackSpec
from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import PassKind
from .pass_memory import PassMemory, PassMemoryModel


class PassMemoryCache:
    """What passes do to the live bytes of a rank.

    Args:
        stack: the software that runs them.
    """

    def __init__(self, stack: StackSpec) -> None:
        self.stack = stack
        # Chunks keep alive the layers and units whose numbers are in the keys.
        self._found: dict[tuple[object, ...], tuple[StageChunk, dict[PassKind, PassMemory]]] = {}

    def of_stage(
        self, chunks: tuple[StageChunk, ...], kinds: tuple[PassKind, ...], prefetch: bool
    ) -> list[PassMemory]:
        """The effect of each kind of pass of a stage.

        Args:
            chunks: its lowered chunks.
            kinds: of its passes.
            prefetch: whether the next unit's gather is under way while a layer computes.
        """
        known = [self._of_chunk(chunk, prefetch) for chunk in chunks]
        player = PassMemoryModel(self.stack, chunks, prefetch)
        effects = []
        for kind in kinds:
            found, anywhere = known[kind.chunk], kind._replace(chunk=0)
            if anywhere not in found:
                found[anywhere] = player.effect_of(kind)
            effects.append(found[anywhere])
        return effects

    def _of_chunk(self, chunk: StageChunk, prefetch: bool) -> dict[PassKind, PassMemory]:
        """Effects known of chunks that hold the same layers and units between the same messages."""
        key = (chunk.layer_ids, chunk.input_bytes, chunk.output_bytes, chunk.sources, prefetch)
        return self._found.setdefault(key, (chunk, {}))[1]
