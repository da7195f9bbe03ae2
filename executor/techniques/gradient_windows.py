"""The run of gradient_windows: sums wait in line, and windows of experts' exchanges take them.

On CUDA devices pieces run on the stream of exchanges between nodes, after a backward's last chunk
has come and before the first leaves; on cores they run beside the host.
"""

from __future__ import annotations

from ...spec.report.trace_marks import technique_mark
from ...spec.techniques.gradient_windows import NAME, GradientWindows
from ..models.block import Block
from ..stage.waiting_sums import LayerWindow, WaitingSums, put_in_line
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun


class WindowHooks(TechniqueHooks):
    """Puts the sums of all units in line, and gives each layer its window."""

    def __init__(self, context: TechniqueContext) -> None:
        self._sums = WaitingSums(context.device, technique_mark(NAME))
        value: GradientWindows = context.value
        windows = set()
        for layer, module in context.modules.items():
            if isinstance(module, Block) and module.chunked_experts is not None:
                windows.add(layer)
                module.chunked_experts.window = LayerWindow(self._sums, value.limit(layer))
        for layer in sorted(context.units, reverse=True):  # a shared unit ends with its first layer
            put_in_line(context.units[layer], self._sums, at_once=layer - 1 not in windows)

    def gradients_ready(self, layer: int) -> None:
        """Sum what no window took, before anything reads gradients."""
        self._sums.finish()


TECHNIQUE = TechniqueRun(name=NAME, start=WindowHooks)
