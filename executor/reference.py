"""The reference: the model on a single process, in torch's own operations and autograd.

It shares the table of parameters and the initial values with the executor, and nothing else:
no custom kernel, no sharding, no pipeline; activations are (batch, seq, hidden). The whole
global batch goes through it in slices of samples whose gradients add up.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..spec.dense import run_parts
from ..spec.errors import NotBuiltError
from ..spec.feed_forward import Moe
from ..spec.mixers import Attention, LatentAttention
from ..spec.model import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from ..spec.plan import Plan
from ..spec.training import LayerTraining, held_parameters
from .loss_scale import LossScale
from .parameters import TIED_WEIGHT, FirstValues, parameter_name, tied_source
from .reference_parts import reference_latent, reference_mixture
from .update import AdamWOptions
from .values import Values, whole_ranges

SLICE_TOKENS = 8192
SCALE = "adapter_scale"
"""Where a layer's weights keep what adapters are multiplied with."""


class Reference:
    """A model and its optimizer on one process.

    Args:
        plan: whose model and workload.
        seed: of the initial weights.
        device: where to compute.
        batch: gives any sample of any step, (seq + 1,) tokens.
        dtype: of the computation; weights and gradients are float32.
        adamw: optimizer settings.
        last_step: the step at which a decaying learning rate ends.
        values: gives the first weights; None: random ones by the seed.
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
        values: Values | None = None,
    ) -> None:
        self.workload = plan.workload
        self.layers = plan.model.layers()
        self.device, self.batch, self.dtype = device, batch, dtype
        self.step_index = 0
        self.parameters: dict[str, nn.Parameter] = {}
        given = FirstValues(values, seed)
        trainings = plan.workload.layer_trainings(plan.model)
        self._weights = [
            self._make(plan, i, layer, training, given)
            for i, (layer, training) in enumerate(zip(self.layers, trainings, strict=True))
        ]
        self.optimizer = self._make_optimizer(adamw)
        self._learning_rate, self._last_step = adamw.learning_rate, last_step
        self.loss_scale = LossScale() if dtype is torch.float16 else None

    def _make(
        self, plan: Plan, index: int, layer: Layer, training: LayerTraining, values: Values
    ) -> dict[str, nn.Parameter]:
        """A layer's parameters by their names in it; a tied one is the embedding's."""
        found = {}
        for spec in held_parameters(layer, plan.workload.seq_len, training):
            source, original = tied_source(plan.model, index, layer, spec)
            name = parameter_name(source, original)
            if name not in self.parameters:
                value = values.part(source, original, whole_ranges(original))
                trained = training.trains_parameter(spec)
                self.parameters[name] = nn.Parameter(value.to(self.device), requires_grad=trained)
            found[spec.name] = self.parameters[name]
        return found

    def _make_optimizer(self, adamw: AdamWOptions) -> torch.optim.AdamW:
        every = [p for p in self.parameters.values() if p.requires_grad]
        groups = [
            {"params": [p for p in every if p.dim() > 1], "weight_decay": adamw.weight_decay},
            {"params": [p for p in every if p.dim() == 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            groups,
            lr=adamw.learning_rate.peak,
            betas=(adamw.beta1, adamw.beta2),
            eps=adamw.eps,
            foreach=False,
        )

    def backward_step(self) -> float:
        """The loss of the next step's global batch; gradients are left in ``parameters``."""
        self.optimizer.zero_grad(set_to_none=True)
        batch, seq = self.workload.global_batch, self.workload.seq_len
        at_once = max(1, SLICE_TOKENS // seq)
        total = 0.0
        for first in range(0, batch, at_once):
            numbers = range(first, min(first + at_once, batch))
            samples = [self.batch(self.step_index, number) for number in numbers]
            loss = self._loss(torch.stack(samples).to(self.device))
            scaled: Tensor = loss * (1.0 if self.loss_scale is None else self.loss_scale.value)
            scaled.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        if self.loss_scale is not None:
            for parameter in self.parameters.values():
                if parameter.grad is not None:
                    parameter.grad.div_(self.loss_scale.value)
        return total

    def update(self) -> None:
        """Clip the gradients and take one optimizer step, unless they overflowed in fp16."""
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
        self.step_index += 1

    def gradients(self) -> dict[str, Tensor]:
        """Every parameter's gradient, float32."""
        return {n: p.grad.float() for n, p in self.parameters.items() if p.grad is not None}

    def name_of(self, name: str) -> str:
        """The reference's name of a parameter: a tied projection is the embedding's weight."""
        if name in self.parameters or not name.endswith(TIED_WEIGHT):
            return name
        index = next(i for i, x in enumerate(self.layers) if isinstance(x, EmbeddingLayer))
        return f"layers.{index}.tokens.weight"

    def _loss(self, tokens: Tensor) -> Tensor:
        """Summed loss of (batch, seq + 1) tokens over the tokens of the global batch."""
        x = self._scores(tokens[:, :-1])
        targets = tokens[:, 1:]
        losses = F.cross_entropy(x.float().flatten(0, 1), targets.flatten(), reduction="sum")
        return losses / self.workload.tokens_per_step

    def logits(self, tokens: Tensor) -> Tensor:
        """What the model makes of (batch, seq) tokens: (batch, seq, vocabulary), float32."""
        with torch.no_grad():
            return self._scores(tokens.to(self.device)).float()

    def _scores(self, x: Tensor) -> Tensor:
        """Logits of (batch, seq) tokens."""
        for layer, weights in zip(self.layers, self._weights, strict=True):
            cast = {name: weight.to(self.dtype) for name, weight in weights.items()}
            if self.workload.adapters is not None:
                cast[SCALE] = torch.tensor(self.workload.adapters.scale, device=self.device)
            if isinstance(layer, EmbeddingLayer):
                x = self._embed(cast, x)
            elif isinstance(layer, BlockLayer):
                x = self._block(layer, cast, x)
            elif isinstance(layer, HeadLayer):
                x = self._logits(layer, cast, x)
        return x

    @staticmethod
    def _embed(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
        x = F.embedding(tokens, weights["tokens.weight"])
        if "positions.weight" in weights:
            x = x + weights["positions.weight"][: tokens.shape[1]]
        return x

    def _block(self, layer: BlockLayer, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        x = x + self._attention(layer, weights, _norm(layer, weights, "attention_norm", x))
        return x + self._mlp(layer, weights, _norm(layer, weights, "mlp_norm", x))

    def _attention(self, layer: BlockLayer, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        spec, _ = run_parts(layer)
        if isinstance(spec, LatentAttention):
            return reference_latent(spec, layer.norm_eps, weights, x)
        if not isinstance(spec, Attention):
            raise NotBuiltError(f"{spec.kind} attention in the reference")
        query, key, value = (
            _linear(weights, name, x).unflatten(-1, (-1, spec.head_dim)).transpose(1, 2)  # type: ignore[no-untyped-call]
            for name in ("query", "key", "value")
        )
        if spec.qk_norm:
            query = _rms_norm(query, weights["query_norm.weight"], layer.norm_eps)
            key = _rms_norm(key, weights["key_norm.weight"], layer.norm_eps)
        if spec.rotary:
            query, key = (_rotate(h, spec.rope_theta) for h in (query, key))
        repeats = spec.heads // spec.kv_heads
        key, value = (h.repeat_interleave(repeats, dim=1) for h in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return _linear(weights, "output", mixed.transpose(1, 2).flatten(2))

    @staticmethod
    def _mlp(layer: BlockLayer, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        mlp = run_parts(layer)[1]
        if isinstance(mlp, Moe):
            return reference_mixture(mlp, weights, x)
        up = _linear(weights, "up", x)
        if mlp.gated:
            up = F.silu(_linear(weights, "gate", x)) * up
        else:
            tanh = mlp.activation == "gelu_tanh"
            up = F.gelu(up, approximate="tanh" if tanh else "none")
        return _linear(weights, "down", up)

    @staticmethod
    def _logits(layer: HeadLayer, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return _linear(weights, "projection", _norm(layer, weights, "norm", x))


def _linear(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    out = F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
    if f"{name}.adapter_a" not in weights:
        return out
    inner = F.linear(x, weights[f"{name}.adapter_a"])
    return out + weights[SCALE] * F.linear(inner, weights[f"{name}.adapter_b"])


def _norm(
    layer: BlockLayer | HeadLayer, weights: dict[str, Tensor], name: str, x: Tensor
) -> Tensor:
    weight = weights[f"{name}.weight"]
    if layer.norm == "rmsnorm":
        return _rms_norm(x, weight, layer.norm_eps)
    return F.layer_norm(x, weight.shape, weight, weights[f"{name}.bias"], layer.norm_eps)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def _rotate(x: Tensor, theta: float) -> Tensor:
    """Turn (batch, heads, seq, head_dim) by position; halves are real and imaginary parts."""
    seq, dim = x.shape[-2:]
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    angles = torch.outer(torch.arange(seq, dtype=torch.float64), theta**-exponents)
    turned = torch.polar(torch.ones_like(angles), angles).to(x.device, torch.complex64)
    real, imaginary = x.float().chunk(2, dim=-1)
    y = torch.complex(real, imaginary) * turned
    return torch.cat((y.real, y.imag), dim=-1).to(x.dtype)
