"""Routers of a rank: the clock they read, sums of their tallies, biases moved between steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...kernels.marks import mark
from ...spec.model.experts import experts_of
from ...spec.model.feed_forward import Balance, Moe
from ...spec.model.towers import layer_contexts
from ...spec.plan.plan import Plan
from ...spec.report.trace_marks import UPDATE
from ...spec.schedules.passes import Pass
from ..groups.process_groups import ProcessGroups
from ..models.block import Block
from ..models.moe.router import AUXILIARY, Z_LOSS, RouterClock, RouterState, needs_router
from ..pipeline.runtime import PassHooks
from ..stage.options import BuildOptions
from ..technique import NamedState, Placement

if TYPE_CHECKING:
    from ..stage.chunk import Chunk

PREFIX = "router_bias."
"""Of the names of biases among the states that checkpoints hold."""


@dataclass(frozen=True, slots=True)
class BalanceResult:
    """Losses and loads that routers tallied in a step, over all ranks.

    ``auxiliary_loss`` and ``z_loss``: without their coefficients, summed over layers.
    ``fullest_over_mean``: assignments to the fullest expert over the mean, by layer.
    """

    auxiliary_loss: float
    z_loss: float
    fullest_over_mean: dict[int, float]

    def to_document(self) -> dict[str, float]:
        """JSON-ready form: the losses, and the worst layer's fullest over mean."""
        return {
            "auxiliary_loss": self.auxiliary_loss,
            "z_loss": self.z_loss,
            "fullest_over_mean": max(self.fullest_over_mean.values()),
        }


def tallied_layers(plan: Plan) -> dict[int, Moe]:
    """Layers whose routers are balanced, by number."""
    found = ((i, experts_of(layer)) for i, layer in enumerate(plan.model.layers()))
    return {i: moe for i, moe in found if moe is not None and moe.balance is not None}


class Routers:
    """The routers of this rank's chunks; told of every pass.

    Args:
        hooks: are told of it too.
    """

    def __init__(
        self,
        plan: Plan,
        chunks: Iterable[Chunk],
        process_groups: ProcessGroups,
        options: BuildOptions,
        hooks: PassHooks,
    ) -> None:
        self.clock, self._hooks = RouterClock(), hooks
        self._samples = plan.program.micro_batch_samples
        self._layers = tallied_layers(plan)
        self.states: dict[int, RouterState] = {}
        self._replicas: dict[int, int] = {}
        self._batch = plan.workload.global_batch
        self._contexts = layer_contexts(plan.model, plan.workload.seq_len)
        self._device = options.device
        for chunk in chunks:
            for key, module in chunk.layers.items():
                index = int(key)
                moe = experts_of(chunk.layer_specs[index])
                if isinstance(module, Block) and moe is not None and needs_router(moe):
                    strategy = chunk.strategies[index]
                    self._replicas[index] = strategy.width // strategy.sequence_split
                    samples = process_groups.samples(strategy)
                    module.router_state = self._state(index, moe, options.seed, samples, module)
                    self.states[index] = module.router_state

    def _state(
        self, index: int, moe: Moe, seed: int, samples: object, module: Block
    ) -> RouterState:
        balance, tokens = moe.balance or Balance(), self._contexts[index].tokens
        device = self._device
        return RouterState(
            layer=index,
            seed=seed,
            clock=self.clock,
            samples=samples,  # type: ignore[arg-type]
            tokens=module.sequence.tokens.held,
            seq_len=tokens,
            all_tokens=self._batch * tokens,
            losses=torch.zeros(2, dtype=torch.float64, device=device),
            load=torch.zeros(moe.experts, dtype=torch.float64, device=device),
            bias=torch.zeros(moe.experts, device=device) if balance.bias_rate else None,
        )

    @property
    def tallies(self) -> bool:
        """True if a layer of the plan is balanced."""
        return bool(self._layers)

    def begin_step(self, step: int, loss_scale: float) -> None:
        """Called before the first pass of a step."""
        self.clock.step, self.clock.loss_scale = step, loss_scale
        for state in self.states.values():
            state.losses.zero_()
            state.load.zero_()

    def begin_pass(self, item: Pass) -> None:
        """Called before a pass."""
        self.clock.first_sample = item.micro_batch * self._samples
        self.clock.counts = item.forward
        self._hooks.begin_pass(item)

    def end_pass(self, item: Pass) -> None:
        """Called after it."""
        self._hooks.end_pass(item)

    def tally(self) -> Tensor | None:
        """This rank's share of all tallies, (losses, loads by layer) float64; None without any.

        Ranks with the same tokens share them out; layers of other stages are 0.
        """
        if not self._layers:
            return None
        losses = torch.zeros(2, dtype=torch.float64, device=self._device)
        parts = [losses]
        for index, moe in self._layers.items():
            state = self.states.get(index)
            if state is None:
                parts.append(losses.new_zeros(moe.experts))
                continue
            losses += state.losses / self._replicas[index]
            parts.append(state.load / self._replicas[index])
        return torch.cat(parts)

    def finish(self, total: Tensor) -> None:
        """Move biases by the summed loads, unless the step is void.

        An expert with more assignments than the mean is chosen less, by the sign alone.
        """
        if not any(state.bias is not None for state in self.states.values()):
            return
        with mark(UPDATE):
            for index, load in self._loads(total):
                state, moe = self.states.get(index), self._layers[index]
                if state is None or state.bias is None or moe.balance is None:
                    continue
                error = (load.mean() - load).sign().to(state.bias.dtype)
                state.bias.add_(error, alpha=moe.balance.bias_rate)

    def result(self, total: Tensor) -> BalanceResult:
        """The step's result, from the summed tally."""
        ratios = {i: float(load.max() / load.mean()) for i, load in self._loads(total)}
        return BalanceResult(float(total[AUXILIARY]), float(total[Z_LOSS]), ratios)

    def _loads(self, total: Tensor) -> Iterable[tuple[int, Tensor]]:
        sizes = [moe.experts for moe in self._layers.values()]
        return zip(self._layers, total[2:].split(sizes), strict=True)  # type: ignore[no-untyped-call]

    def state(self) -> dict[str, NamedState]:
        """Biases, which live from step to step."""
        placed = Placement(kind="replicated")
        return {
            f"{PREFIX}{index}": NamedState(tensor=state.bias, placement=placed)
            for index, state in self.states.items()
            if state.bias is not None
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore :meth:`state`."""
        for name, entry in self.state().items():
            entry.tensor.copy_(tensors[name])

    def resident_tensors(self) -> list[Tensor]:
        """Tallies and biases."""
        states = self.states.values()
        biases = [state.bias for state in states if state.bias is not None]
        return [tensor for state in states for tensor in (state.losses, state.load)] + biases


__all__ = ["PREFIX", "BalanceResult", "Routers", "tallied_layers"]
