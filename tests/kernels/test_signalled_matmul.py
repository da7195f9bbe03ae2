"""The signalled product: in any order of signals what the definition says."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace

import pytest
import torch
from kernel_doubles.kernel_devices import DEVICES, DTYPES, dispatchers, random_values

from shardwright.kernels.dense.signalled_matmul import (
    shards_in_order,
    signalled_matmul,
    signalled_matmul_reference,
)
from shardwright.kernels.dispatch import Dispatcher
from shardwright.spec.errors import InputError

LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
SHAPES = 40


def drawn(number: int) -> tuple[int, int, int, int, int, torch.dtype]:
    """Shards, rank, rows of a shard, k, n and type."""
    source = random.Random(number)
    shards = source.choice([1, 2, 4])
    sizes = source.randint(1, 40), source.randint(1, 80), source.randint(1, 140)
    return shards, source.randrange(shards), *sizes, source.choice(DTYPES)


@DEVICES
@pytest.mark.parametrize("number", range(SHAPES))
def test_equal_to_the_definition_in_any_order(device: str, number: int) -> None:
    """A rank's own shard is there; the others come one by one while the product runs."""
    shards, rank, rows, k, n, dtype = drawn(number)
    x = random_values(shards * rows, k, seed=number, dtype=dtype, device=device)
    weight = random_values(k, n, seed=number + 1, dtype=dtype, device=device)
    order = list(shards_in_order(shards, rank))[1:]
    random.Random(number).shuffle(order)
    for kernels in dispatchers(device):
        arrived, signals = torch.full_like(x, torch.nan), torch.zeros(shards, dtype=torch.int32)
        signals = signals.to(device)
        bring(x, arrived, signals, [rank], rows)
        others = threading.Thread(target=bring, args=(x, arrived, signals, order, rows))
        others.start()
        found = signalled_matmul(kernels, arrived, weight, signals, rank)
        others.join()
        expected = signalled_matmul_reference(x, weight)
        error = (found.double() - expected).norm() / expected.norm()
        assert found.dtype == dtype
        assert float(error) < LIMITS[dtype]


def bring(
    x: torch.Tensor, arrived: torch.Tensor, signals: torch.Tensor, shards: list[int], rows: int
) -> None:
    """Copy shards in, and set each one's signal after it."""
    stream = torch.cuda.Stream(x.device) if x.is_cuda else None  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for shard in shards:
            span = slice(shard * rows, (shard + 1) * rows)
            arrived[span] = x[span]
            signals[shard] = 1
    if stream is not None:
        stream.synchronize()


def test_it_waits_for_what_is_not_there() -> None:
    portable = Dispatcher("portable")
    x, weight = random_values(8, 4), random_values(4, 3, seed=1)
    signals = torch.tensor([1, 0], dtype=torch.int32)
    done = threading.Event()

    def run() -> None:
        signalled_matmul(portable, x, weight, signals)
        done.set()

    waiting = threading.Thread(target=run)
    waiting.start()
    assert not done.wait(0.05)
    signals[1] = 1
    assert done.wait(5)
    waiting.join()


def test_what_does_not_fit_is_refused() -> None:
    portable = Dispatcher("portable")
    x, weight, signals = torch.ones(6, 4), torch.ones(4, 3), torch.ones(4, dtype=torch.int32)
    with pytest.raises(InputError, match="x: got 6 rows; allowed: a multiple of 4 shards"):
        signalled_matmul(portable, x, weight, signals)
    with pytest.raises(InputError, match="weight: got shape"):
        signalled_matmul(portable, x, x, signals)
    with pytest.raises(InputError, match=r"signals: got torch\.int64"):
        signalled_matmul(portable, x, weight, signals.long())
    with pytest.raises(InputError, match="rank: got 4; allowed: 0 to 3"):
        signalled_matmul(portable, torch.ones(8, 4), weight, signals, rank=4)


def test_programs_leave_multiprocessors_to_kernels_that_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from shardwright.kernels.dense.signalled_matmul_triton import programs_at_once

    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    there = torch.device("cuda", 0)
    assert programs_at_once(there, tiles=1000, reserved=20) == 112
    assert programs_at_once(there, tiles=7, reserved=20) == 7
    with pytest.raises(InputError, match="reserved: got 132; allowed: fewer than the device's 132"):
        programs_at_once(there, tiles=7, reserved=132)
