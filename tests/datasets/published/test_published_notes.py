"""Notes of published runs: settings of a stack, however they are written."""

from __future__ import annotations

import pytest

from shardwright.datasets.catalogue.stack_settings import all_settings
from shardwright.datasets.published.notes import OPPOSITE, WORDS, read_settings
from shardwright.datasets.published.runs import MEMORY_TABLE, TABLE, published_runs


@pytest.mark.parametrize(
    ("notes", "settings"),
    [
        ("DeepEP dispatcher; CUDA graphs", {"dispatcher": "deepep", "cuda_graphs": "on"}),
        ("HybridEP, no CUDA graphs", {"dispatcher": "hybridep", "cuda_graphs": "off"}),
        ("moe_flex_dispatcher_backend=hybridep", {"dispatcher": "hybridep"}),
        ("moe-token-dispatcher-type alltoall", {"dispatcher": "alltoall"}),
        ("not using DeepEP", {"dispatcher": "alltoall"}),
        ("cuda_graph_impl=full_iteration", {"cuda_graphs": "on"}),
        ("CUDA graphs: off", {"cuda_graphs": "off"}),
        ("FA3", {"attention_kernels": "3"}),
        ("flash-attn==2.5.8", {"attention_kernels": "2"}),
        ("flash_attention_2", {"attention_kernels": "2"}),
        ("cuDNN attention", {"attention_kernels": "3"}),
        ("cross-entropy-loss-fusion", {"loss": "fused"}),
        ("liger fused linear cross entropy", {"loss": "chunked"}),
        ("moe_a2a_overlap", {"expert_overlap": "on"}),
        ("overlap-moe-expert-parallel-comm", {"expert_overlap": "on"}),
        ("no EP overlap", {"expert_overlap": "off"}),
        ("compile+AsyncTP; peak mem 4 GiB", {"compile": "on", "tp_overlap": "on"}),
        ("without torch.compile", {"compile": "off"}),
        ("attention_kernels=2,expert_overlap=on",
         {"attention_kernels": "2", "expert_overlap": "on"}),
    ],
)  # fmt: skip
def test_a_word_is_read_as_its_setting(notes: str, settings: dict[str, str]) -> None:
    assert read_settings(notes) == settings


@pytest.mark.parametrize(
    "notes",
    ["", "FA2/FA3", "DeepEP or HybridEP", "flash attention", "no overlap", "deepepoch",
     "moe-token-dispatcher-type", "HFU=55.0; grad_accum=1; MP mode DEFAULT"],
)  # fmt: skip
def test_what_has_no_one_meaning_is_not_read(notes: str) -> None:
    assert read_settings(notes) == {}


def test_every_word_names_a_value_of_a_setting() -> None:
    for _, key, value in WORDS:
        values = all_settings()[key]["values"]
        assert value in values
        assert OPPOSITE.get(value, value) in values


def test_what_the_shipped_notes_say() -> None:
    times = {r.id: s for r in published_runs(TABLE) if (s := read_settings(r.notes))}
    assert {name.partition("-")[0] for name in times} == {"titan"}
    assert sum("tp_overlap" in s for s in times.values()) == 1
    peaks = [s for r in published_runs(MEMORY_TABLE) if (s := read_settings(r.notes))]
    assert sum(s.get("cuda_graphs") == "on" for s in peaks) == 8
    assert sum(s.get("grad_overlap") == "on" for s in peaks) == 72
