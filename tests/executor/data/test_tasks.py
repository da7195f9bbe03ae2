"""Records of every task: what layers read of them, and that only seed and number decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from generators.family_cases import FamilyCase, bert, t5, vit
from torch.nn import functional as F

from shardwright.executor.data.records import MaskedTokens, StoredImages, random_batches
from shardwright.executor.data.tasks import plan_task, task_of
from shardwright.spec.errors import InputError
from shardwright.spec.model.layers import PatchLayer

BERT = FamilyCase(name="bert", model=bert(), ranks=1)
VIT = FamilyCase(name="vit", model=vit(), ranks=1)
T5 = FamilyCase(name="t5", model=t5(encoder_tokens=8), ranks=1)


def _records(case: FamilyCase, seed: int = 0) -> torch.Tensor:
    batch = random_batches(case.plan(), seed)
    return torch.stack([batch(1, sample) for sample in range(3)], dim=1)


@pytest.mark.parametrize("case", [BERT, VIT, T5], ids=lambda c: c.name)
def test_records_depend_on_seed_and_number_only(case: FamilyCase) -> None:
    first, second = _records(case), _records(case)
    assert torch.equal(first, second)
    assert first.shape == (plan_task(case.plan()).record, 3)
    assert first.dtype == torch.int64
    assert not torch.equal(first, _records(case, seed=1))
    columns = first.unbind(1)
    assert not torch.equal(columns[0], columns[1])


def test_hidden_tokens_are_restored_at_every_position() -> None:
    plan = FamilyCase(name="", model=bert(), ranks=1, seq_len=80).plan()
    task, whole = plan_task(plan), torch.arange(81) % 60
    batch = MaskedTokens(lambda step, sample: whole, 64, 8, 0)
    records = torch.stack([batch(0, sample) for sample in range(50)], dim=1)
    seen, wanted = task.feed(0, records), task.targets(records)
    assert task.losses == 80
    assert torch.equal(wanted, whole[:-1].unsqueeze(1).expand_as(wanted))
    changed = (seen != wanted).double().mean().item()
    masked = (seen == 63).double().mean().item()
    assert 0.11 < changed < 0.16
    assert 0.10 < masked < 0.14


def test_a_decoder_goes_on_where_the_encoder_ends() -> None:
    task = task_of(t5(encoder_tokens=8), 16)
    records = torch.arange(25).unsqueeze(1)
    (encoder, _), (decoder, _) = task.firsts
    assert task.feed(encoder, records)[:, 0].tolist() == list(range(8))
    assert task.feed(decoder, records)[:, 0].tolist() == list(range(8, 24))
    assert task.targets(records)[:, 0].tolist() == list(range(9, 25))


def test_patches_are_what_a_convolution_reads() -> None:
    plan = VIT.plan()
    task, records = plan_task(plan), _records(VIT)
    layer = plan.model.layers()[0]
    assert isinstance(layer, PatchLayer)
    images = (records[1:].T.reshape(3, 3, 12, 12) / 127.5 - 1).float()
    columns = F.unfold(images, layer.patch, stride=layer.patch).permute(2, 0, 1)
    assert torch.allclose(task.feed(0, records), columns)
    assert torch.equal(task.targets(records), records[:1])


def _store(folder: Path, count: int = 5, classes: int = 10) -> PatchLayer:
    layer = vit().layers()[0]
    assert isinstance(layer, PatchLayer)
    numbers = np.arange(count * 3 * 12 * 12) % 251
    np.save(folder / "images.npy", numbers.reshape(count, 3, 12, 12).astype(np.uint8))
    np.save(folder / "classes.npy", np.arange(count) % classes)
    return layer


def test_stored_images_come_once_an_epoch(tmp_path: Path) -> None:
    batch = StoredImages(tmp_path, _store(tmp_path), 10, 5, 0)
    first = [batch(0, sample) for sample in range(5)]
    assert sorted(int(row[0]) for row in first) == list(range(5))
    assert [int(batch(1, s)[0]) for s in range(5)] != [int(row[0]) for row in first]
    assert all(row.shape == (1 + 3 * 12 * 12,) for row in first)


def test_stored_images_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    layer = _store(tmp_path, classes=10)
    with pytest.raises(InputError, match="whole numbers from 0 to 3"):
        StoredImages(tmp_path, layer, 4, 5, 0)
    np.save(tmp_path / "images.npy", np.zeros((5, 3, 8, 8), dtype=np.uint8))
    with pytest.raises(InputError, match="uint8"):
        StoredImages(tmp_path, layer, 10, 5, 0)
    (tmp_path / "images.npy").unlink()
    with pytest.raises(InputError, match=r"images\.npy cannot be read"):
        StoredImages(tmp_path, layer, 10, 5, 0)
