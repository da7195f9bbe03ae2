"""Galvatron's profile folders: the shipped one is read whole, every fault names file and key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.datasets.galvatron.profile import GalvatronProfile
from shardwright.datasets.galvatron.read import SHIPPED, read_profile
from shardwright.spec.errors import InputError

MEMORY = "memory_profiling_bf16_llama2-7b_all.json"
TIMES = "computation_profiling_bf16_llama2-7b_all.json"
REDUCE = "allreduce_bandwidth_1nodes_8gpus_per_node.json"
STAGES = "p2p_bandwidth_1nodes_8gpus_per_node.json"
LATENCIES = "sp_time_1nodes_8gpus_per_node.json"
SLOWDOWN = "overlap_coefficient.json"


def read(folder: Path, seq_lens: tuple[int, ...] = (2048,), nodes: int = 1) -> GalvatronProfile:
    return read_profile(folder, "llama-2-7b", "bf16", seq_lens, nodes, 8)


def test_the_shipped_profile_is_read_whole() -> None:
    found = read(SHIPPED)
    (layer,) = found.model.layers
    assert layer.parameter_mb == 778.2236328125
    assert layer.recomputed_mb == 32.0
    assert layer.activation_mb[8] == 68.3204345703125
    assert sorted(n for n, _ in layer.forward_ms) == list(range(1, 13))
    assert found.model.first.states_mb[1] == 2021.0048828125
    assert found.model.last.activation_mb[8] == 85.55889892578125
    assert found.machine.allreduce[8, 0] == found.machine.allreduce[8, 1] == 154.203
    assert found.machine.p2p == {2: 163.671, 4: 138.581, 8: 109.45}
    assert found.machine.slowdown == 1.125552573612729
    assert dict(found.machine.all2all_ms[2])[1024] == 3.4954
    assert len(found.files) == 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped profile that a test may spoil."""
    return Path(shutil.copytree(SHIPPED, tmp_path / "profile"))


def without(*keys: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return change


def with_value(value: Any, *keys: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


FAULTS: list[tuple[str, Callable[[Any], None], tuple[str, ...]]] = [
    (SLOWDOWN, with_value("fast", "overlap_coe"), ("overlap_coe", "a positive number")),
    (SLOWDOWN, with_value(0.5, "overlap_coe"), ("overlap_coe", "at least 1")),
    (SLOWDOWN, with_value(1.2, "overlap"), ("overlap",)),
    (REDUCE, without("allreduce_size_4_consec_0"), ("allreduce_size_4_consec_0", "nothing")),
    (REDUCE, with_value(True, "allreduce_size_2_consec_1"), ("allreduce_size_2_consec_1",)),
    (STAGES, with_value(-3.0, "pp_size_2"), ("pp_size_2", "-3.0")),
    (LATENCIES, with_value(1.0, "allreduce_size_8_64MiB_time"), ("64MiB",)),
    (LATENCIES, without("all2all_size_4_1MB_time"), ()),
    (TIMES, with_value(None, "layertype_0_bsz3_seq2048"), ("layertype_0_bsz3_seq2048", "None")),
    (TIMES, with_value(1.0, "layertype_1_bsz1_seq2048"), ("layertype_1_bsz1_seq2048", "1 layer")),
    (MEMORY, without("layertype_0_sp", "2048", "parameter_size"),
     ("layertype_0_sp: 2048: parameter_size", "nothing")),
    (MEMORY, with_value([], "other_memory_pp_off_sp"), ("other_memory_pp_off_sp", "JSON object")),
    (MEMORY, with_value(1.0, "layertype_0_sp", "2048", "tp_activation_per_bsz_dict", "two"),
     ("tp_activation_per_bsz_dict", "two")),
    (MEMORY, without("layertype_0_sp"), ("layer types []",)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "says"), FAULTS)
def test_a_fault_is_named_by_file_and_key(
    folder: Path, name: str, change: Callable[[Any], None], says: tuple[str, ...]
) -> None:
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))
    if not says:  # ten sizes are enough for a line
        assert len(read(folder).machine.all2all_ms[4]) == 10
        return
    with pytest.raises(InputError) as error:
        read(folder)
    for word in (name, *says):
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match="sp_time_2nodes"):
        read(folder, nodes=2)
    (folder / TIMES).unlink()
    with pytest.raises(InputError, match="computation_profiling_bf16_"):
        read(folder)


def test_too_few_batch_sizes_and_other_lengths_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="0 batch sizes"):
        read(folder, seq_lens=(4096,))
    with pytest.raises(InputError, match="layertype_1_bsz"):
        read(folder, seq_lens=(2048, 2048))


def test_the_model_chooses_among_several(folder: Path) -> None:
    for kind in ("computation", "memory"):
        own = folder / f"{kind}_profiling_bf16_llama2-7b_all.json"
        shutil.copy(own, folder / f"{kind}_profiling_bf16_other_all.json")
    assert read(folder).files[0] == TIMES
    with pytest.raises(InputError, match="2 models"):
        read_profile(folder, "gpt2", "bf16", (2048,), 1, 8)
