"""``models``, ``clusters``, dry runs and the rendering of runs; a real run is under distributed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.catalogue.models import models_document
from shardwright.api.execution import execution
from shardwright.api.problem import this_machine
from shardwright.api.terminal.console import console
from shardwright.api.terminal.run import print_execution
from shardwright.datasets.models.load import presets
from shardwright.profiler.store.profiles import StoredProfiles
from shardwright.spec.codec import from_document
from shardwright.spec.errors import InputError, RunError
from shardwright.spec.model.model_spec import ModelSpec

Plan = Callable[..., Any]


def test_models_have_sizes_and_sources(plan: Plan) -> None:
    document = plan("models", "--json", "-").document
    named = {item["name"]: item for item in document["models"]}
    assert document["default"] in named
    assert named["llama-3-70b"]["parameters"] == 70_553_706_496
    assert named["gpt2"]["parameters"] == 124_439_808
    assert all(item["source"] for item in named.values())
    kinds = {
        "llama-3-8b": "dense",
        "mixtral-8x7b": "experts",
        "nemotron-h-8b": "hybrid",
        "bert-large": "encoder",
        "t5-large": "encoder-decoder",
        "llava-1.5-7b": "image and text",
    }
    assert {name: named[name]["kind"] for name in kinds} == kinds
    mixtral = named["mixtral-8x7b"]
    assert (mixtral["experts"], mixtral["topk"], mixtral["expert_ffn"]) == (8, 2, 14336)
    assert mixtral["active_parameters"] == 12_879_925_248 < mixtral["parameters"]
    shown = plan("models").out
    assert all(name in shown for name in named)


def test_one_model_shows_its_layers_bytes_and_source(plan: Plan) -> None:
    document = plan("models", "GPT2", "--json", "-").document
    assert (document["name"], document["parameters"]) == ("gpt2", 124_439_808)
    assert [(row["count"], row["parameters"]) for row in document["layer_kinds"]] == [
        (1, 39_383_808), (12, 7_087_872), (1, 1536),
    ]  # fmt: skip
    assert document["weights_bytes"] == 2 * 124_439_808
    assert document["training_bytes"] == 18 * 124_439_808
    assert document["adapter_targets"] == ["query", "key", "value", "output", "up", "down"]
    shown = plan("models", "gpt2").out
    for words in ("124 M parameters", "block: attention 12/12", "left out: dropout", "source: Rad"):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize("name", presets())
def test_the_layers_of_a_model_add_up_to_it(name: str) -> None:
    document = models_document(name)
    total = sum(row["count"] * row["parameters"] for row in document["layer_kinds"])
    assert total == document["parameters"]
    assert from_document(ModelSpec, document["spec"], "spec") == presets()[name].model


def test_a_typed_model_shows_what_was_assumed(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("layers: 2\nhidden: 64\nheads: 4\nvocab: 100\nposition: learned\n")
    document = plan("models", str(path), "--json", "-").document
    assert document["name"] == "mine"
    assert "source" not in document
    assert document["parameters"] == models_document(str(path))["parameters"]
    assert "left out; as many as heads" in plan("models", str(path)).out


def test_an_unknown_model_is_refused_with_the_nearest(plan: Plan) -> None:
    refused = plan("models", "qwen3-40b")
    assert refused.code == 2
    assert "nearest: qwen3-4b" in refused.err


def test_clusters_have_figures_and_sources(plan: Plan) -> None:
    document = plan("clusters", "--json", "-").document
    h100 = next(item for item in document["devices"] if item["name"] == "H100-SXM-80GB")
    assert h100["peak_flops_per_s"]["bf16"] == 989.4e12
    assert h100["sources"]["memory_bandwidth_bytes_per_s"]
    assert {"HGX-H100", "DGX-1"} <= {item["name"] for item in document["nodes"]}
    assert document["local"]["cores"] >= 1
    shown = plan("clusters").out
    for words in ("H100-SXM-80GB", "HGX-A100", "NVLink4", "8x400G-IB", "this machine: local:"):
        assert words in shown


def test_clusters_say_how_each_figure_is_known(plan: Plan) -> None:
    document = plan("clusters", "--json", "-").document
    for item in (*document["devices"], *document["nodes"], *document["fabrics"]):
        assert set(item["kinds"]) == set(item["sources"])
        assert set(item["kinds"].values()) <= {"measured", "data sheet", "derived", "assumed"}
    named = {item["name"]: item["kinds"] for item in document["devices"]}
    assert named["A100-SXM-80GB"]["matmul_ceiling"] == "measured"
    assert named["A100-SXM-80GB"]["peak_flops_per_s.bf16"] == "data sheet"
    assert named["L4-24GB"]["matmul_ceiling"] == "assumed"
    assert [level["level"] for level in document["levels"]] == [
        "intra_pair", "intra_node", "intra_rack", "inter_rack", "inter_zone",
    ]  # fmt: skip
    assert document["disagreements"][0]["taken"] == 312e12


def test_no_line_of_clusters_is_cut_or_too_wide(plan: Plan) -> None:
    for arguments in ((), ("H100-80GB",), ("GB200",), ("FRONTIER",), ("4xGB300+8xMI300X",)):
        shown = plan("clusters", *arguments).out
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= 100
        assert "…" not in shown


def test_one_entry_shows_every_source(plan: Plan) -> None:
    document = plan("clusters", "h100-80gb", "--json", "-").document
    (h100,) = document["devices"]
    assert h100["name"] == "H100-SXM-80GB"
    assert [item["name"] for item in document["nodes"]] == ["HGX-H100"]
    assert [item["name"] for item in document["fabrics"]] == ["NVLink4", "8x400G-IB"]
    shown = " ".join(plan("clusters", "H100-80GB").out.split())
    assert "NVIDIA H100 whitepaper v1.04, 2023, SXM5, dense" in shown
    assert "where sources disagree" in shown
    assert "with sparsity" in shown
    node = plan("clusters", "NVL72-GB300", "--json", "-").document
    assert not node["devices"]
    assert [item["name"] for item in node["fabrics"]] == ["NVLink5-NVL72", "4x800G-IB"]


def test_clusters_list_instances_and_show_one(plan: Plan) -> None:
    document = plan("clusters", "--json", "-").document
    named = {item["name"]: item for item in document["instances"]}
    assert named["p4de.24xlarge"]["text"] == "1x8xA100-SXM-80GB@4x100G-EFA"
    assert all(item["source"] for item in named.values())
    listed = " ".join(plan("clusters").out.split())
    assert all(name in listed for name in named)
    shown = " ".join(plan("clusters", "4xp4de.24xlarge").out.split())
    assert "p4de.24xlarge of Amazon EC2: 1x8xA100-SXM-80GB@4x100G-EFA" in shown
    assert "4x8xA100-SXM-80GB@4x100G-EFA" in shown
    assert "nearest: p4d.24xlarge" in plan("clusters", "p4df.24xlarge").err


def test_a_cluster_shows_its_levels(plan: Plan) -> None:
    document = plan("clusters", "2x8xH100+2x72xGB200", "--json", "-").document
    levels = [
        (x["device_group"], x["level"], x["group_size"]) for x in document["cluster"]["levels"]
    ]
    assert levels == [
        ("h100", "intra_node", 8), ("h100", "intra_rack", 16),
        ("gb200", "intra_node", 4), ("gb200", "intra_rack", 72), ("gb200", "inter_rack", 144),
        ("all groups", "inter_rack", 160),
    ]  # fmt: skip
    assert "all groups" in plan("clusters", "2x8xH100+2x72xGB200").out


@pytest.mark.timeout(150)  # steps of a process with torch: slow beside another test
def test_dry_run_names_ranks_and_groups(plan: Plan, tmp_path: Path) -> None:
    target, written = tmp_path / "plan.json", tmp_path / "dry-run.json"
    asked = ("--model", "shardwright-demo", "--cluster", "8xH100", "--global-batch", "8")
    asked += ("--seq-len", "256")
    degrees = ("--tp", "2", "--pp", "2", "--shard", "zero2")
    assert plan("simulate", *asked, *degrees, "--json", str(target)).code == 0
    done = plan("execute", str(target), "--dry-run", "--steps", "7", "--json", str(written))
    assert done.code == 0, done.err
    document = json.loads(written.read_text())
    assert document["ranks"] == 8
    assert [stage["ranks"] for stage in document["stages"]] == [[0, 3], [4, 7]]
    groups = {g["use"]: g["members"] for g in document["stages"][1]["groups"]}
    assert groups == {"tensor parallel": [[4, 5], [6, 7]], "shard": [[4, 6], [5, 7]]}
    rows = document["rehearsal"]
    assert sorted(number for row in rows for number in row["stages"]) == [0, 1]
    assert all(row["peak_bytes"] > row["resident_bytes"] > 0 for row in rows)
    kinds = {item["kind"] for row in rows for item in row["collectives"]}
    assert {"all_reduce", "send", "recv"} <= kinds
    shown = done.out
    assert "what a rank sends most of in a step" in shown
    assert "would start 8 ranks of H100-SXM-80GB for 7 steps" in shown
    assert "torchrun --nproc-per-node 8" in shown


def test_cuda_devices_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert this_machine.cuda_count(tmp_path) == 0
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    assert this_machine.cuda_count(tmp_path) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert this_machine.cuda_count(tmp_path) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert this_machine.cuda_count(tmp_path) == 0


def _document(report: Any) -> dict[str, Any]:
    prediction = report["prediction"]
    measured_s = prediction["step_time_s"] * 1.25
    term = {"predicted_s": prediction["breakdown_s"]["matmul"], "measured_s": measured_s / 2}
    return {
        "plan_hash": report["plan_hash"],
        "measured": {
            "step_time_s": measured_s,
            "tokens_per_s_per_device": prediction["tokens_per_s_per_device"] / 1.25,
            "allocated_bytes": 2**30,
            "losses": [5.0 - n / 10 for n in range(45)],
        },
        "predicted": prediction,
        "comparison": {"terms": [{"term": "matmul", "share": 0.5, **term}]},
        "verify": {"max_rel_loss_diff": 1e-7, "max_rel_grad_diff": 2e-6},
    }


def test_a_run_is_shown_beside_its_prediction(base_report: Any) -> None:
    out = io.StringIO()
    print_execution(console(out), _document(base_report), [])
    shown = out.getvalue()
    assert "predicted against measured" in shown
    assert "-20.0%" in shown
    assert "matmul" in shown
    assert "1.0e-07" in shown
    assert "2.0e-06" in shown
    steps = [line.split()[0] for line in shown.splitlines() if line.split()[:1] != []]
    assert {"1", "45"} <= set(steps)
    assert len([s for s in steps if s.isdigit()]) <= 21


def _local_plan(plan: Plan, tmp_path: Path) -> str:
    target = tmp_path / "local.json"
    arguments = ("simulate", "--cluster", "local:2", "--global-batch", "4", "--seq-len", "32")
    assert plan(*arguments, "--calibration", "none", "--json", str(target)).code == 0
    return str(target)


def test_execute_hands_the_plan_over(
    plan: Plan, base_report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments that the command passes to the run; the run is left out."""
    asked: list[Any] = []

    def fake(plan_: Any, stack: Any, profile: Any, options: Any, on_event: Any, notes: Any) -> Any:
        asked.append(options)
        on_event({"event": "step", "step": 1, "loss": 5.5, "gradient_norm": 1.0, "time_s": 0.25})
        return _document(base_report)

    monkeypatch.setattr(execution, "execute_plan", fake)
    monkeypatch.setattr(
        "shardwright.profiler.store.profiles.newest_profile", lambda ranks: object()
    )
    monkeypatch.setattr(
        "shardwright.api.problem.resolve.stored_profiles", lambda ranks: StoredProfiles()
    )
    target = _local_plan(plan, tmp_path)
    result = plan("execute", target, "--steps", "3", "--verify", "--data", "text.txt")
    assert result.code == 0, result.err
    assert (asked[0].steps, asked[0].verify, asked[0].data) == (3, True, "text.txt")
    assert "5.5000" in result.out
    document = plan("execute", target, "--json", "-").document
    assert {"plan_hash", "measured", "predicted", "verify"} <= set(document)
    assert asked[1].steps == 20


def test_a_failed_run_exits_4(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise RunError("rank 1 was killed by SIGKILL in step 3")

    monkeypatch.setattr(execution, "execute_plan", failing)
    monkeypatch.setattr(
        "shardwright.profiler.store.profiles.newest_profile", lambda ranks: object()
    )
    monkeypatch.setattr(
        "shardwright.api.problem.resolve.stored_profiles", lambda ranks: StoredProfiles()
    )
    result = plan("execute", _local_plan(plan, tmp_path))
    assert result.code == 4
    assert result.err == "rank 1 was killed by SIGKILL in step 3\n"


def test_devices_that_are_not_here_are_refused_before_any_search(plan: Plan) -> None:
    from shardwright.api.cli.execute import require_executable_problem
    from shardwright.api.problem.resolve import Inputs, resolve

    problem = resolve(Inputs(cluster="8xV100", global_batch=8, seq_len=64))
    with pytest.raises(InputError, match="CUDA devices"):
        require_executable_problem(problem)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--model", "gpt-oss-120b", "--ep", "8"), "clamped_swiglu"),
    ],
)
def test_dry_run_refuses_what_no_machine_runs(
    plan: Plan, tmp_path: Path, flags: tuple[str, ...], says: str
) -> None:
    target = tmp_path / "plan.json"
    asked = ("--cluster", "8xH200", "--global-batch", "16", "--seq-len", "512")
    assert plan("simulate", *flags, *asked, "--json", str(target)).code == 0
    refused = plan("execute", str(target), "--dry-run")
    assert refused.code == 2
    assert says in refused.err
    assert "not run yet" in refused.err
