"""Four ranks that save by URL, share the writing, and read every byte once under another plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks.checkpoint_matrix import SAME_BOUND, Cell, payload
from ranks.rank_pools import RankPool

from shardwright.executor.checkpoint.manifest import read_manifest
from shardwright.executor.checkpoint.storage.far_path import FarPath
from shardwright.executor.checkpoint.storage.folders import MANIFEST, step_folders
from shardwright.executor.launch.pool import TRAIN_JOB

SAVER, READER = Cell("dp", 4), Cell("zero3", 4)


def test_replicas_save_by_url_and_shards_go_on(four_ranks: RankPool, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/run"
    asked = payload(SAVER, 3, folder=url, every=2)
    saved = four_ranks.run(TRAIN_JOB, asked)[0]
    measured = saved["checkpoint"]["measured"]
    assert measured["largest_over_mean"] <= 1.1
    folders = step_folders(FarPath(url))
    assert [path.name[-1] for path in folders] == ["3", "2"]
    manifest = read_manifest(folders[1])
    unique = sum(part.bytes for tensor in manifest.tensors.values() for part in tensor.parts)
    assert {path.name for path in folders[1].iterdir()} == {MANIFEST, *manifest.files}
    again = four_ranks.run(TRAIN_JOB, payload(READER, 3, resume=str(folders[1])))[0]
    assert again["checkpoint"]["measured"]["read_bytes"] == unique
    losses = saved["measured"]["losses"][2:]
    assert again["measured"]["losses"] == pytest.approx(losses, rel=SAME_BOUND)
