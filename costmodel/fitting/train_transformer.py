"""Train the transformer over leaves; runs as a child process, the only one that loads torch.

    python -m shardwright.costmodel.fitting.train_transformer IN.npz OUT.npz

IN holds leaves, devices, labels and weights of rows (:mod:`transformer_fit` writes it). Same
input, same bytes of arrays: one thread, a seed for weights and one for the order of rows.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..programs.positions import encoded
from ..programs.transformer import HEADS, INNER, LAYERS, WIDTH

BATCH = 128
WARM_SHARE = 0.1


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows, leaves, _ = x.shape
        parts = self.qkv(self.first(x)).view(rows, leaves, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[:, None, None, :]
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, leaves, WIDTH))
        out: Tensor = x + self.down(_gelu(self.up(self.second(x))))
        return out


class Net(nn.Module):
    """The module whose numpy twin is :class:`programs.transformer.Transformer`."""

    def __init__(self, features: int, figures: int) -> None:
        super().__init__()
        self.entry = nn.Linear(features, WIDTH)
        self.layers = nn.ModuleList(_Layer() for _ in range(LAYERS))
        self.last, self.pooling = nn.LayerNorm(WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.device = nn.ModuleList(
            (nn.Linear(figures, WIDTH), nn.Identity(), nn.Linear(WIDTH, WIDTH))
        )
        self.decoder = nn.ModuleList((nn.Linear(WIDTH, WIDTH), nn.Identity(), nn.Linear(WIDTH, 1)))

    def hidden(self, features: Tensor, places: Tensor, mask: Tensor, devices: Tensor) -> Tensor:
        """Embeddings of programs on devices."""
        x = self.entry(features) + places
        for layer in self.layers:
            x = layer(x, mask)
        x, weight = self.last(x), mask[..., None]
        mean = (x * weight).sum(1) / weight.sum(1)
        most = x.masked_fill(~weight, -1e9).amax(1)
        pooled: Tensor = self.pooling(torch.cat([mean, most], 1))
        on: Tensor = self.device[2](_gelu(self.device[0](devices)))
        out = pooled + on
        return out

    def decoded(self, hidden: Tensor) -> Tensor:
        """Normalized labels."""
        out: Tensor = self.decoder[2](_gelu(self.decoder[0](hidden)))
        return out[:, 0]


def _gelu(x: Tensor) -> Tensor:
    return nn.functional.gelu(x, approximate="tanh")


def central_moments(left: Tensor, right: Tensor, orders: int = 5) -> Tensor:
    """Central moment discrepancy of two samples inside [0, 1] (Zellinger et al., ICLR 2017)."""
    means = left.mean(0), right.mean(0)
    total: Tensor = (means[0] - means[1]).norm()
    for order in range(2, orders + 1):
        moments = [((x - m) ** order).mean(0) for x, m in zip((left, right), means, strict=True)]
        total = total + (moments[0] - moments[1]).norm()
    return total


def _scaled(values: NDArray[Any], mean: NDArray[Any], scale: NDArray[Any]) -> Tensor:
    return torch.from_numpy(((values - mean) / scale).astype(np.float32))


def trained(given: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Weights fitted to rows.

    Args:
        given: ``features``, ``positions``, ``mask``, ``devices``, ``labels``, ``weights`` of rows;
            ``settings``: seed, epochs, uses_positions, 1000 x learning rate, alignment;
            ``start_*``: weights to go on from; ``target_*``: unlabelled rows to align with.
    """
    seed, epochs, uses_positions, rate, alignment = given["settings"].tolist()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(int(seed))
    scales = _scales(given, bool(uses_positions))
    net = Net(given["features"].shape[-1], given["devices"].shape[-1])
    if "start_entry.weight" in given:
        names = net.state_dict()
        net.load_state_dict({name: torch.from_numpy(given[f"start_{name}"]) for name in names})
    inputs = _inputs(given, scales, "")
    targets = _inputs(given, scales, "target_") if alignment else None
    labels = _scaled(given["labels"], scales["label"][0], scales["label"][1])
    row_weights = torch.from_numpy(given["weights"].astype(np.float32))
    _fit(net, inputs, labels, row_weights, targets, (int(seed), int(epochs), rate / 1e3, alignment))
    weights = {name: value.numpy() for name, value in net.state_dict().items()}
    return {**weights, **scales}


def _fit(
    net: Net,
    inputs: tuple[Tensor, ...],
    labels: Tensor,
    weights: Tensor,
    targets: tuple[Tensor, ...] | None,
    settings: tuple[int, int, float, float],
) -> None:
    seed, epochs, rate, alignment = settings
    order = torch.Generator().manual_seed(seed)
    steps = max(1, epochs * -(-len(labels) // BATCH))
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=WARM_SHARE)
    for _ in range(epochs):
        shuffled = torch.randperm(len(labels), generator=order)
        for start in range(0, len(labels), BATCH):
            rows = shuffled[start : start + BATCH]
            hidden = net.hidden(*(x[rows] for x in inputs))
            error = (net.decoded(hidden) - labels[rows]).abs()
            loss = (error * weights[rows]).sum() / weights[rows].sum()
            if targets is not None:
                other = torch.randint(len(targets[0]), (len(rows),), generator=order)
                far = net.hidden(*(x[other] for x in targets))
                loss = loss + alignment * central_moments(hidden.sigmoid(), far.sigmoid())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()


def _inputs(
    given: dict[str, NDArray[Any]], scales: dict[str, NDArray[Any]], prefix: str
) -> tuple[Tensor, ...]:
    features = _scaled(given[f"{prefix}features"], scales["feature_mean"], scales["feature_scale"])
    places = encoded(given[f"{prefix}positions"], WIDTH) * scales["uses_positions"][0]
    devices = _scaled(given[f"{prefix}devices"], scales["device_mean"], scales["device_scale"])
    mask = torch.from_numpy(given[f"{prefix}mask"])
    return features, torch.from_numpy(places.astype(np.float32)), mask, devices


def _scales(given: dict[str, NDArray[Any]], uses_positions: bool) -> dict[str, NDArray[Any]]:
    names = ("feature_mean", "feature_scale", "device_mean", "device_scale", "label")
    used = np.array([uses_positions], np.float32)
    if "start_label" in given:
        return {**{name: given[f"start_{name}"] for name in names}, "uses_positions": used}
    rows, devices, labels = given["features"][given["mask"]], given["devices"], given["labels"]
    scale = labels.std() or 1.0
    return {
        "feature_mean": rows.mean(0, dtype=np.float64).astype(np.float32),
        "feature_scale": _spread(rows),
        "device_mean": devices.mean(0, dtype=np.float64).astype(np.float32),
        "device_scale": _spread(devices),
        "label": np.array([labels.mean(), scale], np.float32),
        "uses_positions": used,
    }


def _spread(rows: NDArray[Any]) -> NDArray[np.float32]:
    spread = rows.std(0, dtype=np.float64)
    return np.where(spread > 1e-6, spread, 1.0).astype(np.float32)


def main() -> int:
    """Read rows, train, write weights."""
    with np.load(sys.argv[1], allow_pickle=False) as arrays:
        given = {name: arrays[name] for name in arrays.files}
    weights: dict[str, Any] = {**trained(given)}
    np.savez(sys.argv[2], **weights)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
