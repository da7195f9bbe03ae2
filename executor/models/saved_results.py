"""Named results that a recomputed block keeps; runs what the lowering's tape prices.

Products and exchanges ask here before they run. Fused attention is one operation of the library,
kept by its selective checkpointing with the logarithms that its backward reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from ...kernels.marks import mark
from ...spec.report.trace_marks import RECOMPUTE

ATTENTION = "attention"
FUSED_ATTENTIONS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in (
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    )
    if hasattr(torch.ops.aten, name)
)
Store = dict[str, deque[Tensor]]


class SavedResults:
    """Results of a block that its recomputation takes instead of making them again."""

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        self.names = names
        self._saving: Store | None = None
        self._restoring: Store | None = None

    @property
    def recomputing(self) -> bool:
        """True while the block is run again for its backward pass."""
        return self._restoring is not None

    def kept(self, name: str) -> Tensor | None:
        """The result of this name while the block is recomputed, if it was kept."""
        if self._restoring is None or name not in self.names:
            return None
        return self._restoring[name].popleft()

    def keep(self, name: str, result: Tensor) -> None:
        """Keep a result, if it is named."""
        if self._saving is not None and name in self.names:
            self._saving.setdefault(name, deque()).append(result.detach())

    def recomputed(self, function: object, *inputs: object) -> Any:
        """Run now keeping inputs and named results, and rerun the rest in the backward pass."""
        return checkpoint(
            function,
            *inputs,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=self._contexts,
        )

    def _contexts(self) -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
        store: Store = {}
        forward: AbstractContextManager[object] = nullcontext()
        again: AbstractContextManager[object] = nullcontext()
        if ATTENTION in self.names:
            forward, again = create_selective_checkpoint_contexts(_keeps_attention)  # type: ignore[no-untyped-call]
        return self._active(forward, saving=store), self._active(again, restoring=store)

    @contextmanager
    def _active(
        self,
        around: AbstractContextManager[object],
        saving: Store | None = None,
        restoring: Store | None = None,
    ) -> Iterator[None]:
        before = self._saving, self._restoring
        with ExitStack() as stack:
            stack.enter_context(around)
            if restoring is not None:
                stack.enter_context(mark(RECOMPUTE))
            self._saving, self._restoring = saving, restoring
            try:
                yield
            finally:
                self._saving, self._restoring = before


def _keeps_attention(_context: object, operation: object, *_: object, **__: object) -> Any:
    fused = operation in FUSED_ATTENTIONS
    return CheckpointPolicy.MUST_SAVE if fused else CheckpointPolicy.PREFER_RECOMPUTE


class NamedResult(NamedTuple):
    """Names of an operation's results, and where they may be kept."""

    results: SavedResults
    names: tuple[str, ...]

    def kept(self) -> list[Tensor | None]:
        """The kept result of each name, or None."""
        return [self.results.kept(name) for name in self.names]

    def keep(self, *results: Tensor) -> None:
        """Keep the results that are named."""
        for name, result in zip(self.names, results, strict=False):
            self.results.keep(name, result)


NOT_KEPT = SavedResults()
NO_NAMES = NamedResult(NOT_KEPT, ())
NO_NAME = NamedResult(NOT_KEPT, ("",))
"""Of operations outside recomputed blocks."""

__all__ = ["NOT_KEPT", "NO_NAME", "NO_NAMES", "NamedResult", "SavedResults"]
