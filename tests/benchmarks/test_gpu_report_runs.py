"""Unmeasured runs of the GPU report: traces and plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpu.child import make_setting
from gpu.model_case import plan_of, problem_of
from gpu.stage import Setting
from gpu.stages import end_to_end
from gpu.stages.ceilings import rows as ceilings
from gpu.tiny_runs import GRAPHS, TRACED, check_trace, tries

from shardwright.spec.errors import InputError
from shardwright.spec.report.timeline import Counter, Span, Stream, Timeline
from shardwright.spec.techniques.compile import mode_of


def on_gpu(folder: Path) -> Setting:
    """Setting of a GPU's stages; nothing here runs on it."""
    facts = {"cluster": "1xH100-SXM-80GB", "device": "NVIDIA H100", "memory_bytes": 85 * 10**9}
    plain = make_setting(folder, reduced=True)
    return replace(plain, reduced=False, device=torch.device("cuda", 0), facts=facts)


def written(path: Path, counters: tuple[Counter, ...], spans: int = 1) -> Path:
    stream = Stream(rank=0, kind="compute", name="compute")
    made = tuple(
        Span(stream=stream, name="a", start_s=float(n), duration_s=0.5, term="compute")
        for n in range(spans)
    )
    timeline = Timeline(origin="measured", spans=made, counters=counters)
    path.write_text(timeline.to_perfetto(), encoding="utf-8")
    return path


def test_a_trace_is_read_with_its_memory(tmp_path: Path) -> None:
    memory = Counter(rank=0, name="allocated_bytes", points=((0.0, 2.0**20), (1.0, 2.0**21)))
    found = check_trace(written(tmp_path / "a.json", (memory,)))
    assert found["said"] == "1 spans, allocated_bytes 2.0 MiB at most"
    with pytest.raises(ValueError, match="1 spans, allocated_bytes 0 at most"):
        check_trace(written(tmp_path / "b.json", ()))
    with pytest.raises(ValueError, match="0 spans"):
        check_trace(written(tmp_path / "c.json", (memory,), spans=0))
    (tmp_path / "d.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError):
        check_trace(tmp_path / "d.json")


def test_graphs_are_tried_on_a_device_only(tmp_path: Path) -> None:
    assert set(tries(end_to_end.TINY, make_setting(tmp_path, reduced=True))) == {TRACED}
    assert set(tries(end_to_end.TINY, on_gpu(tmp_path))) == {TRACED, GRAPHS}


def test_compiled_runs_have_legal_plans_on_a_device(tmp_path: Path) -> None:
    setting = on_gpu(tmp_path)
    asked = ((end_to_end.FULL, None, "default"), (end_to_end.TINY, "fp32", "cuda_graph"))
    for case, dtype, mode in asked:
        plan = plan_of(problem_of(case, setting, dtype=dtype), 1, compiled=mode)
        modes = [mode_of(strategy) for strategy in plan.layer_strategies()]
        assert modes.count(mode) == case.layers
    keys = [row.key for row in end_to_end.rows(setting)]
    wanted = [end_to_end.OURS, *end_to_end.PLAIN, end_to_end.COMPILED, TRACED, GRAPHS]
    assert keys == wanted


def test_tables_hold_steps_and_tiny_runs_apart(tmp_path: Path) -> None:
    (tiny,) = end_to_end.tables({TRACED: {"said": "1 span"}})
    assert tiny.rows == [(TRACED, "1 span")]


def test_a_product_is_measured_on_and_on(tmp_path: Path) -> None:
    rows = {row.key: row for row in ceilings(make_setting(tmp_path, reduced=True))}
    found = rows["matmul, sustained"].run()
    assert found["spent_s"] >= 0.05
    assert found["flops_per_s"] > 0
