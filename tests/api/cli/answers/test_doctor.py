"""``plan doctor``: figures with a kind and a source, prices by source, layers, nearest runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.cli.main import NOT_BUILT_VERBS
from shardwright.api.doctor.document import doctor_document
from shardwright.api.problem.model_and_cluster import cluster_of, model_of
from shardwright.api.problem.workload_size import usual_seq_len
from shardwright.api.validation.nearest_runs import distance, run_features
from shardwright.costmodel.explain.price_sources import SOURCES
from shardwright.costmodel.kernel_latency.attention_grid import learned_attention_grid
from shardwright.costmodel.kernel_latency.gemm_grid import learned_gemm_grid
from shardwright.datasets.catalogue.device import Device, device
from shardwright.datasets.catalogue.fabric import Fabric
from shardwright.datasets.catalogue.source_kind import KINDS, source_kind
from shardwright.datasets.catalogue.stack import stacks
from shardwright.datasets.models.load import presets
from shardwright.profiler.store.profiles import fingerprint, save_profile
from shardwright.spec.cluster.machine_profile import CollectiveRow, KernelRow, MachineProfile

Plan = Callable[..., Any]
PAIRS = (
    ("llama-3-70b", "8x8xH100", None),
    ("deepseek-v3", "2x72xGB200", "megatron"),
    ("nemotron", "2x8xH100+4x8xA100", "torchtitan"),
    ("t5-large", "4x8xMI250X", "deepspeed"),
    ("vit-h", "1xA100-80GB", None),
    (None, None, None),
)


@pytest.fixture(autouse=True)
def _no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0]} {pair[1]}")
def document(request: pytest.FixtureRequest) -> Any:
    return doctor_document(*request.param)


def test_every_figure_has_a_kind_and_a_source_and_counts_add_up(document: Any) -> None:
    figures = document["figures"]
    for row in figures["rows"]:
        assert row["source"].strip()
        assert row["kind"] == source_kind(row["source"])
        assert row["value"] is not None
    assert figures["count"] == len(figures["rows"]) == sum(figures["kinds"].values())
    counted = Counter(row["kind"] for row in figures["rows"])
    assert {kind: n for kind, n in figures["kinds"].items() if n} == counted
    for kind in figures["kinds"]:
        assert figures["kinds"][kind] == sum(part["kinds"][kind] for part in figures["by_part"])
    names = Counter((row["of"], row["figure"]) for row in figures["rows"])
    assert set(names.values()) == {1}


@pytest.mark.parametrize("tier", ["host", "nvme"])
def test_a_granted_tier_shows_the_figures_of_its_copies(tier: str) -> None:
    """Of the link that devices share, or of the drives of their node; none without a grant."""
    named = {
        "host": {"devices_per_host_link", "both_ways_slowdown", "host_link_share",
                 "host_memory_bytes_per_s"},
        "nvme": {"drive_read_bytes_per_s", "drive_write_bytes_per_s"},
    }  # fmt: skip
    keys = {"nodes": 1, "devices_per_node": 8, "device": "A100-80GB"}
    rows, plain = (
        {row["figure"]: row for row in doctor_document("gpt2", cluster)["figures"]["rows"]}
        for cluster in ({**keys, f"{tier}_gib": 64}, keys)
    )
    assert rows.keys() - plain.keys() - {"host_link_bytes_per_s"} == named[tier]
    if tier == "host":
        assert rows["devices_per_host_link"]["value"] == 2
        assert {"host_link_bytes_per_s"} <= rows.keys()


def test_prices_add_up_by_source(document: Any) -> None:
    for row in document["prices"]:
        total_s = sum(term["seconds"] for term in row["terms"].values())
        for term in row["terms"].values():
            assert term["seconds"] == pytest.approx(sum(term[name] for name in SOURCES))
        assert sum(row["share"].values()) == pytest.approx(1)
        for name, share in row["share"].items():
            of_source_s = sum(term[name] for term in row["terms"].values())
            assert share == pytest.approx(of_source_s / total_s)
        assert row["share"]["learned"] == 0
    assert document["learned"]


def test_layers_are_those_of_the_model(document: Any) -> None:
    layers = document["model"]["layers"]
    spec = presets()[document["model"]["name"]].model
    assert sum(row["count"] for row in layers) == len(spec.layers())
    for row in layers:
        able = {name: row[name] for name in ("planned", "simulated", "run")}
        assert row["why_not"].keys() == {name for name, is_able in able.items() if not is_able}
        assert row["planned"]
        assert row["simulated"]
    run = all(row["run"] for row in layers)
    assert run == (document["model"]["run"] is None)


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_looked_into(name: str) -> None:
    document = doctor_document(name, "2x8xH100")
    assert all(row["simulated"] for row in document["model"]["layers"])
    assert document["workload"]["seq_len"] == usual_seq_len(presets()[name].model)
    assert {"matmul", "elementwise", "optimizer"} <= document["prices"][0]["terms"].keys()


class _Reads:
    """Records which figures of a catalogue entry are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *kinds: type) -> None:
        self.found: set[tuple[str, str]] = set()
        for kind in kinds:
            monkeypatch.setattr(kind, "__getattribute__", self._recording(kind.__name__))

    def _recording(self, kind: str) -> Callable[[Any, str], Any]:
        def read(item: Any, name: str) -> Any:
            self.found.add((kind, name))
            return object.__getattribute__(item, name)

        return read


def test_the_figures_are_those_that_a_simulation_reads(
    monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    rows = doctor_document("gpt2", "2x4xA10")["figures"]["rows"]
    learned_gemm_grid.cache_clear()  # what it was learned from is read once a process
    learned_attention_grid.cache_clear()
    reads = _Reads(monkeypatch, Device, Fabric)
    arguments = ("--global-batch", "64", "--seq-len", "1024", "--tp", "4", "--pp", "2")
    assert plan("simulate", "--model", "gpt2", "--cluster", "2x4xA10", *arguments).code == 0
    monkeypatch.undo()
    parts = {"device": "Device", "fabric": "Fabric"}
    listed = {
        (parts[row["part"]], row["figure"].partition(".")[0])
        for row in rows
        if row["part"] in parts and row["figure"] != "oversubscription"
    }
    catalogued = {("Device", name.partition(".")[0]) for name in device("A10").sources}
    catalogued |= {("Fabric", row["figure"]) for row in rows if row["part"] == "fabric"}
    assert listed == reads.found & catalogued


def test_typed_figures_are_typed(tmp_path: Path) -> None:
    keys = {
        "nodes": 2,
        "devices_per_node": 8,
        "device": "H100-80GB",
        "memory_gib": 40,
        "oversubscription": 2,
        "intra_node_bandwidth_gb_per_s": 300,
        "inter_node_latency_us": 10,
    }
    figures = doctor_document("gpt2", keys)["figures"]
    typed = {row["figure"]: row["value"] for row in figures["rows"] if row["kind"] == "typed"}
    assert typed == {
        "capacity_bytes": 40 * 2**30,
        "oversubscription": 2,
        "bandwidth_bytes_per_s": 300e9,
        "latency_s": pytest.approx(1e-5),
    }
    assert figures["kinds"]["typed"] == 4


def test_a_choice_of_the_stack_that_was_changed_is_derived() -> None:
    rows = doctor_document("gpt2", "8xH100", "megatron")["figures"]["rows"]
    found = next(row for row in rows if row["figure"] == "attention")
    assert (found["value"], found["kind"]) == ("flash", "derived")
    assert stacks()["megatron"].attention == "unfused"


def test_formula_constants_are_assumed_where_nothing_was_measured() -> None:
    for name, kind in (("8xA100", "measured"), ("8xMI300X", "assumed")):
        rows = doctor_document("gpt2", name)["figures"]["rows"]
        kinds = {row["figure"]: row["kind"] for row in rows if row["part"] == "formula"}
        assert kinds.pop("device_range") == "assumed"  # measured on neither
        assert set(kinds.values()) == {kind}


def _profile(ranks: int) -> MachineProfile:
    rows = [
        KernelRow(
            op="matmul", shape=(m, m, m), dtype="fp32", flops=2 * m**3,
            traffic_bytes=12 * m * m, time_s=m**3 / 1e11,
        )
        for m in (64, 512, 4096)
    ]  # fmt: skip
    sums = [
        CollectiveRow(kind="all_reduce", ranks=ranks, payload_bytes=n, time_s=n / 1e9)
        for n in (2**10, 2**20)
    ]
    return MachineProfile(
        fingerprint=fingerprint(), machine={}, ranks=ranks, measured_at="2026-01-01T00:00:00Z",
        duration_s=1.0, kernels=tuple(rows), collectives=tuple(sums), host_s={"kernel": 1e-6},
    )  # fmt: skip


def test_a_profile_is_what_measured_prices_rest_on() -> None:
    before = doctor_document(None, "local:2")
    assert before["prices"][0]["share"]["measured"] == 0
    assert before["calibration"]["name"] == "none"
    assert "2 ranks" in before["calibration"]["why"]
    save_profile(_profile(2))
    after = doctor_document(None, "local:2")
    assert after["prices"][0]["terms"]["matmul"]["measured"] > 0
    assert after["prices"][0]["terms"]["matmul"]["analytic"] == 0
    assert after["calibration"] == {
        "name": f"profile {fingerprint()}", "measured_at": "2026-01-01T00:00:00Z", "ranks": 2,
        "kernels": 3, "collectives": 2, "host_s": {"kernel": 1e-6},
    }  # fmt: skip
    without = doctor_document(None, "local:2", calibration="none")
    assert without["prices"] == before["prices"]
    assert without["calibration"]["why"] == "none was asked for"


def test_the_nearest_run_of_a_published_model_is_that_model() -> None:
    found = doctor_document("llama-3-70b", "8x8xH100")["nearest"]
    assert found["rows"] >= found["with_a_time"] >= found["compared"] > 0
    first = found["runs"][0]
    assert "LLAMA3_70B" in first["model"].upper().replace("-", "_").replace("3.1", "3")
    assert first["hardware"].startswith(("H100", "H200"))
    assert first["source"]
    assert first["step_time_s"] > 0
    distances = [run["distance"] for run in found["runs"]]
    assert distances == sorted(distances)
    assert len({json.dumps(run["layout"]) + run["model"] for run in found["runs"]}) == 3
    for run in found["runs"]:
        assert run["distance"] == pytest.approx(sum(run["apart"].values()))


def test_distance_is_what_its_table_says() -> None:
    model, experts = model_of("llama-3-8b")[0], model_of("mixtral-8x7b")[0]
    here = run_features(model, cluster_of("1x8xH100").cluster, "bf16", 4096)
    assert distance(here, here) == {}
    more = run_features(model, cluster_of("4x8xH100").cluster, "fp8", 4096, adapters=True)
    assert distance(here, more) == {"devices": 1.0, "dtype": 1.0, "adapters": 2.0}
    assert distance(more, here) == distance(here, more)
    bus = run_features(model, cluster_of("1x8xH100-PCIE").cluster, "bf16", 4096)
    assert distance(here, bus) == {"device": 0.5}
    other = distance(here, run_features(model, cluster_of("1x8xA100").cluster, "bf16", 4096))
    assert other == {"device": pytest.approx(1 + 1.665, abs=1e-3)}
    parts = distance(here, run_features(experts, cluster_of("1x8xH100").cluster, "bf16", 4096))
    assert parts.keys() == {"active_parameters", "blocks", "experts"}


def test_the_verb_is_built() -> None:
    assert "doctor" not in NOT_BUILT_VERBS


def test_sums_come_first_and_fit_the_width(plan: Plan) -> None:
    shown = plan("doctor", "mixtral-8x7b", "2x8xH100+4x8xA100", "--stack", "megatron")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 100
    head = "\n".join(lines[:12])
    sums = ("mixtral-8x7b", "megatron", "figures: of ", *KINDS, "products and attention: ")
    for words in (*sums, "runs here: no", "nearest published run: "):
        assert words in head
    assert "of 8 x 14336" in shown.out


def test_json_is_the_document_and_the_same_each_time(plan: Plan, tmp_path: Path) -> None:
    first = plan("doctor", "gpt2", "8xH100", "--json", "-")
    assert first.code == 0
    document = first.document
    assert document == json.loads(json.dumps(doctor_document("gpt2", "8xH100")))
    target = tmp_path / "doctor.json"
    assert plan("doctor", "gpt2", "8xH100", "--json", str(target)).code == 0
    assert target.read_text() == first.out


def test_both_left_out_is_the_default_model_here(plan: Plan) -> None:
    document = plan("doctor", "--json", "-").document
    assert document["model"]["name"] == "shardwright-demo"
    assert document["cluster"]["here"] is None
    assert document["model"]["run"] is None
    assumed = {note["path"]: note["value"] for note in document["assumptions"]}
    assert assumed["model"] == "shardwright-demo"
    assert assumed["cluster"] == document["cluster"]["text"]
    assert "runs here: yes, with a plan that fits" in plan("doctor").out


def test_a_model_alone_is_looked_into_on_this_machine(plan: Plan) -> None:
    alone, named = (plan("doctor", "gpt2", *c, "--json", "-").document for c in ((), ("local",)))
    assert alone["cluster"] == named["cluster"]
    assert alone["prices"] == named["prices"]
    assert "(far)" in plan("doctor", "gpt2").out
