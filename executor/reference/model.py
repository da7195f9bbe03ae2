"""The reference: the model on one process, by torch's autograd.

It shares only the parameter table and initial values with the executor: no custom kernel, sharding
or pipeline; activations are (batch, seq, hidden). Slices of the global batch accumulate gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...spec.model.experts import experts_of
from ...spec.model.layers import Layer, PatchLayer
from ...spec.model.towers import layer_contexts
from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import table_blocks
from ...spec.workload.training import LayerTraining, parameters_with_adapters
from ..data.prepared import PreparedBatches
from ..engine.lion import Lion
from ..engine.loss_scale import LossScale
from ..engine.optimizer_step import AdamWOptions
from ..stage.initial_weights import InitialWeights, parameter_name, tied_source
from ..stage.weight_source import WeightSource, full_ranges
from .experts import reference_routers
from .layers import SCALE, run_layer

SLICE_TOKENS = 8192


class Reference:
    """A model and its optimizer on one process.

    Args:
        batch: any sample of any step, a record of integers.
        dtype: of the computation; weights and gradients are float32.
        last_step: end of learning-rate decay.
        weight_source: of initial weights; None for random ones by seed.
    """

    def __init__(
        self,
        plan: Plan,
        seed: int,
        device: torch.device,
        batch: Callable[[int, int], Tensor],
        dtype: torch.dtype,
        adamw: AdamWOptions,
        *,
        last_step: int = 1,
        weight_source: WeightSource | None = None,
    ) -> None:
        self.plan, self.workload = plan, plan.workload
        self.places = layer_contexts(plan.model, plan.workload.seq_len)
        self.layers = plan.model.layers()
        self.device, self.batch, self.dtype = device, batch, dtype
        self.step_index = 0
        self.parameters: dict[str, nn.Parameter] = {}
        self._own_names: dict[str, str] = {}
        initial = InitialWeights(weight_source, seed)
        trainings = plan.workload.layer_trainings(plan.model)
        self._weights = [
            self._make(plan, i, layer, training, initial)
            for i, (layer, training) in enumerate(zip(self.layers, trainings, strict=True))
        ]
        self.optimizer = self._make_optimizer(adamw)
        self._learning_rate, self._last_step = adamw.learning_rate, last_step
        self.loss_scale = LossScale() if dtype is torch.float16 else None
        self.routers = reference_routers(plan, seed, device)
        self.balances: list[tuple[float, float]] = []
        """Auxiliary loss and z-loss of each step, without coefficients, summed over layers."""

    def _make(
        self, plan: Plan, index: int, layer: Layer, training: LayerTraining, weights: WeightSource
    ) -> dict[str, nn.Parameter]:
        """A layer's parameters by local name; a tied one is the embedding's."""
        values = {}
        for spec in parameters_with_adapters(layer, self.places[index].tokens, training):
            source, original = tied_source(plan.model, index, spec)
            name = parameter_name(source, original)
            self._own_names[parameter_name(index, spec)] = name
            if name not in self.parameters:
                value = weights.read_range(source, original, full_ranges(original))
                trained = training.trains_parameter(spec)
                self.parameters[name] = nn.Parameter(value.to(self.device), requires_grad=trained)
            values[spec.name] = self.parameters[name]
        return values

    def _make_optimizer(self, adamw: AdamWOptions) -> torch.optim.Optimizer:
        every = [p for p in self.parameters.values() if p.requires_grad]
        groups = [
            {"params": [p for p in every if p.dim() > 1], "weight_decay": adamw.weight_decay},
            {"params": [p for p in every if p.dim() == 1], "weight_decay": 0.0},
        ]
        if self.workload.optimizer == "lion":
            return Lion(groups, lr=adamw.learning_rate.peak)
        return torch.optim.AdamW(
            groups,
            lr=adamw.learning_rate.peak,
            betas=(adamw.beta1, adamw.beta2),
            eps=adamw.eps,
            foreach=False,
        )

    def backward_step(self) -> float:
        """Loss of the next global batch; gradients stay in ``parameters``."""
        self.optimizer.zero_grad(set_to_none=True)
        batch, seq = self.workload.global_batch, self.workload.seq_len
        at_once = max(1, SLICE_TOKENS // seq)
        if self.routers:  # groups are of a micro-batch
            whole = self.plan.program.micro_batch_samples
            at_once = max(1, at_once // whole) * whole
        total, self._tallied = 0.0, [0.0, 0.0]
        for router in self.routers.values():
            router.step = self.step_index
            router.load.zero_()
        for first in range(0, batch, at_once):
            numbers = range(first, min(first + at_once, batch))
            samples = [self.batch(self.step_index, number) for number in numbers]
            for router in self.routers.values():
                router.first = first
            loss = self._loss(torch.stack(samples).to(self.device), self._seen(numbers))
            balanced = loss + self._balance_losses()
            scaled: Tensor = balanced * (1.0 if self.loss_scale is None else self.loss_scale.value)
            scaled.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        if self.loss_scale is not None:
            for parameter in self.parameters.values():
                if parameter.grad is not None:
                    parameter.grad.div_(self.loss_scale.value)
        self.balances.append((self._tallied[0], self._tallied[1]))
        return total

    def _balance_losses(self) -> Tensor:
        """The slice's losses that balance, with their coefficients."""
        total = torch.zeros((), device=self.device)
        for index, router in self.routers.items():
            moe = experts_of(self.layers[index])
            losses, router.losses = router.losses, [torch.zeros(()), torch.zeros(())]
            if moe is None or moe.balance is None:
                continue
            total = total + moe.balance.aux_loss * losses[0] + moe.balance.z_loss * losses[1]
            self._tallied = [
                a + float(b.detach()) for a, b in zip(self._tallied, losses, strict=True)
            ]
        return total

    def _move_biases(self) -> None:
        for index, router in self.routers.items():
            moe = experts_of(self.layers[index])
            if moe is not None and moe.balance is not None and moe.balance.bias_rate:
                error = (router.load.mean() - router.load).sign()
                router.bias += moe.balance.bias_rate * error

    def update(self) -> None:
        """Clip gradients and step the optimizer, unless fp16 gradients overflowed."""
        if self.loss_scale is not None:
            grads = self.gradients().values()
            overflowed = not all(bool(torch.isfinite(grad).all()) for grad in grads)
            self.loss_scale.after(overflowed)
            if overflowed:
                self.step_index += 1
                return
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate.at(self.step_index, self._last_step)
        if self.workload.gradient_clip_norm is not None:
            limit = self.workload.gradient_clip_norm
            nn.utils.clip_grad_norm_(self.parameters.values(), limit, foreach=False)
        self.optimizer.step()
        self._move_biases()
        self.step_index += 1

    def gradients(self) -> dict[str, Tensor]:
        """Every parameter's gradient, float32."""
        return {n: p.grad.float() for n, p in self.parameters.items() if p.grad is not None}

    def name_of(self, name: str) -> str:
        """The reference's name of a parameter; a shared table's first layer."""
        if name in self._own_names:
            return self._own_names[name]
        index = int(name.split(".")[1])  # a copy of a table of relative positions
        return name.replace(f"layers.{index}.", f"layers.{table_blocks(self.plan.model)[index]}.")

    def _seen(self, numbers: range) -> Tensor | None:
        """0 within the documents of these samples, -inf between them; None for one each."""
        if self.workload.lengths is None or not isinstance(self.batch, PreparedBatches):
            return None
        seq = self.workload.seq_len
        owners = torch.stack(
            [
                torch.bucketize(
                    torch.arange(seq),
                    torch.tensor(self.batch.documents(self.step_index, number)),
                    right=True,
                )
                for number in numbers
            ]
        )
        seen = torch.zeros(len(owners), 1, seq, seq, dtype=self.dtype)
        apart = owners[:, None, :, None] != owners[:, None, None, :]
        return seen.masked_fill(apart, -torch.inf).to(self.device)

    def _loss(self, records: Tensor, seen: Tensor | None) -> Tensor:
        cut = _ReferenceInputs(self.plan, records)
        x = self._scores(cut, seen)
        targets = cut.targets(x.shape[1])
        losses = F.cross_entropy(x.float().flatten(0, 1), targets.flatten(), reduction="sum")
        return losses / (self.workload.global_batch * x.shape[1])

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits of (batch, seq) tokens: (batch, seq, vocabulary), float32."""
        with torch.no_grad():
            return self._scores(_ReferenceInputs(self.plan, tokens.to(self.device))).float()

    def _scores(self, cut: _ReferenceInputs, seen: Tensor | None = None) -> Tensor:
        """The last layer's output before its loss."""
        outputs: dict[int, Tensor] = {}
        x, bias, start = cut.records, None, 0
        for index, (layer, weights) in enumerate(zip(self.layers, self._weights, strict=True)):
            place = self.places[index]
            cast = {name: weight.to(self.dtype) for name, weight in weights.items()}
            if self.workload.adapters is not None:
                cast[SCALE] = torch.tensor(self.workload.adapters.scale, device=self.device)
            if place.begins_tower:
                outputs[index - 1], bias = x, None
                x, start = cut.data(layer, place.tokens, start)
            source = outputs[place.read[0].layer] if place.read else None
            x, bias = run_layer(layer, cast, x, source, bias, self.routers.get(index), seen)
        return x


class _ReferenceInputs:
    """Inputs and targets of (batch, record) samples.

    A record is an image's class and bytes; or all towers' tokens in reading order, then one more,
    or the original tokens where masked ones are restored.
    """

    def __init__(self, plan: Plan, records: Tensor) -> None:
        self.records = records
        self.of_images = isinstance(plan.model.layers()[0], PatchLayer)

    def data(self, layer: Layer, tokens: int, start: int) -> tuple[Tensor, int]:
        """Return a tower's input and the next part's start."""
        if isinstance(layer, PatchLayer):
            images = self.records[:, 1:].float() / 127.5 - 1
            return images.view(-1, layer.channels, layer.image, layer.image), 0
        return self.records[:, start : start + tokens], start + tokens

    def targets(self, count: int) -> Tensor:
        """Class of each image, or ``count`` tokens of each sample."""
        return self.records[:, :1] if self.of_images else self.records[:, -count:]
