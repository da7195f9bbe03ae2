"""Profiles of GPUs: which is used, what is priced from it, and what is said of that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_doubles.device_profiles import (
    BYTES_PER_S,
    DEVICE,
    FLOPS_PER_S,
    LINK_BYTES_PER_S,
    device_profile,
)

from shardwright.api.doctor.document import doctor_document
from shardwright.api.problem import profile_notes as notes_module
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.measured.shipped_profiles import ship_profile, shipped_profiles
from shardwright.planner.solve.problem import Problem
from shardwright.profiler.overhead.host_overhead import DEVICE_CONSTANTS, with_overheads
from shardwright.profiler.overhead.probes import message_probe, probe_plan, probes
from shardwright.profiler.store import profiles
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.codec import canonical_json, from_document, from_json, to_document
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.work_items import Collective, Kernel
from shardwright.spec.rules.plan_rules import unsupported_run


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def problem(cluster: str, **more: Any) -> Problem:
    return resolve(Inputs(model="gpt2", cluster=cluster, global_batch=64, seq_len=512, **more))


def pricer(cluster: str, profile: MachineProfile) -> Pricer:
    return Pricer(Machine(parse_cluster(cluster).cluster, profile), stack("shardwright"))


def test_a_profile_survives_its_document() -> None:
    profile = device_profile(2)
    assert from_json(MachineProfile, canonical_json(profile), "p") == profile


def test_a_document_of_before_devices_still_loads() -> None:
    text = (
        '{"fingerprint": "x", "machine": {}, "ranks": 2, "measured_at": "then", "duration_s": 9,'
        '"kernels": [{"op": "add", "shape": [8], "dtype": "fp32", "traffic_bytes": 96,'
        '"time_s": 1e-6}], "collectives": [{"kind": "send", "ranks": 2, "payload_bytes": 8,'
        '"time_s": 1e-6}], "host_s": {"kernel": 1e-6}, "kernel_slowdown": 1.2}'
    )
    found = from_json(MachineProfile, text, "old")
    assert (found.device, found.copies, found.overlap_slowdown, found.skipped) == (
        "cpu",
        (),
        None,
        (),
    )
    assert found.collectives[0].beside_product is False
    assert "device" not in json.loads(canonical_json(found))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("device",), ""),
        (("overlap_slowdown",), 2.5),
        (("copies", 0, "kind"), "tape_read"),
        (("copies", 0, "payload_bytes"), 0),
        (("copies", 0, "speed"), 1),
        (("skipped", 0, "why"), 3),
    ],
)
def test_a_wrong_document_is_refused(path: tuple[Any, ...], value: Any) -> None:
    document: Any = json.loads(canonical_json(device_profile(2)))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError):
        from_document(MachineProfile, document, "p")


def test_profiles_are_found_by_device() -> None:
    profiles.save_profile(device_profile(2))
    profiles.save_profile(device_profile(2, "H100-SXM-80GB"))
    found = profiles.newest_profile(2, DEVICE)
    assert found is not None
    assert found.device == DEVICE
    assert profiles.newest_profile(2) is None
    assert profiles.newest_profile(1, DEVICE) is None
    assert profiles.stored_profiles(4, DEVICE).other_ranks == (2,)


def test_a_profile_of_another_device_under_this_name_is_skipped() -> None:
    path = profiles.save_profile(device_profile(2))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "device": "H100-SXM-80GB"}))
    skipped = profiles.stored_profiles(2, DEVICE)
    assert skipped.profile is None
    assert "H100" in skipped.unreadable[0]


def test_this_machine_s_gpus_are_priced_by_their_profile() -> None:
    before = problem("1x2xH200")
    assert before.measured is None
    profiles.save_profile(device_profile(2))
    found = problem("1x2xH200")
    assert isinstance(found.measured, MachineProfile)
    (note,) = [item for item in found.assumptions if item.path == "calibration"]
    assert "this machine's 2 x H200" in note.why
    assert problem("1x2xH200", calibration="none").measured is None
    for other in ("1x4xH200", "1x2xH100", "1x2xH200+1x2xH100", "local:2"):
        assert not isinstance(problem(other).measured, MachineProfile), other


def test_further_nodes_are_said_to_be_taken_as_like_this_one() -> None:
    profiles.save_profile(device_profile(8))
    found = problem("2x8xH200")
    assert isinstance(found.measured, MachineProfile)
    (note,) = [item for item in found.assumptions if item.path == "calibration"]
    assert "other nodes" in note.why


def test_a_machine_with_such_gpus_is_told_to_measure_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [item for item in problem("1x2xH200").assumptions if item.path == "calibration"]
    monkeypatch.setattr(notes_module, "cuda_models", lambda: ("NVIDIA H200",) * 2)
    (note,) = [item for item in problem("1x2xH200").assumptions if item.path == "calibration"]
    assert f"plan profile --cluster 2x{DEVICE}" in note.why


def test_kernels_and_links_cost_what_was_measured() -> None:
    prices = pricer("1x2xH200", device_profile(2))
    product = prices.kernel(Kernel("matmul", (4096, 4096, 4096), "bf16", 2 * 4096**3, 3 * 2**25))
    assert product.source == "measured"
    assert product.time_s == pytest.approx(1.05 * (2 * 4096**3 / FLOPS_PER_S + 2e-6))
    norm = prices.kernel(Kernel("rms_norm", (2**29,), "bf16", 0, 2**30))
    assert norm.time_s == pytest.approx(1.05 * (2**30 / BYTES_PER_S + 2e-6))
    sums = prices.collective(Collective("all_reduce", 2, 1, 2**30, "bf16"))
    assert sums.source == "measured"
    assert sums.time_s == pytest.approx(2**30 / LINK_BYTES_PER_S + 1e-5), "alone, not beside"


def test_links_of_a_node_say_nothing_of_those_between_nodes() -> None:
    prices = pricer("2x8xH200", device_profile(8))
    inside = Collective("all_reduce", 8, 1, 2**28, "bf16")
    across = Collective("all_reduce", 2, 8, 2**28, "bf16")
    assert prices.collective(inside).source == "measured"
    assert prices.collective(across).source == "analytic"
    own = Pricer(Machine(parse_cluster("2x8xH200").cluster), stack("shardwright"))
    outer = prices.machine.levels[-1]
    assert prices.message(2**20, outer) == own.message(2**20, outer)
    assert prices.message(2**20, prices.machine.levels[0]) != own.message(
        2**20, own.machine.levels[0]
    )


def test_host_constants_and_sharing_replace_the_stack_s() -> None:
    profile = device_profile(2)
    prices = pricer("1x2xH200", profile)
    assert prices.launch_s == 9e-6
    assert prices.pass_s == 5e-5
    assert prices.stack.overlap_slowdown == 1.25
    unsaid = pricer("1x2xH200", replace(profile, overlap_slowdown=None))
    assert unsaid.stack == stack("shardwright")


def test_launches_are_the_host_s_and_hide_behind_kernels() -> None:
    """With launches a thousand times slower the host shows; as measured, kernels hide it."""
    profile = device_profile(1)
    plan = probe_plan(probes(1, True, DEVICE)[1], 1, DEVICE)

    def step_s(kernel_s: float) -> float:
        host = {**profile.host_s, "kernel": kernel_s, "layer_pass": 0.0}
        machine = Machine(plan.cluster, replace(profile, host_s=host))
        return Simulator.for_plan(plan, machine, stack("shardwright")).run(plan).step_time_s

    assert step_s(1e-9) == step_s(2e-9)
    assert step_s(2e-2) > 1.9 * step_s(1e-2)


def test_doctor_names_the_profile() -> None:
    profiles.save_profile(device_profile(2))
    document = doctor_document("gpt2", "1x2xH200")
    assert document["prices"][0]["terms"]["matmul"]["measured"] > 0
    named = document["calibration"]
    assert named["name"] == f"profile {profiles.fingerprint(DEVICE)}"
    assert (named["device"], named["ranks"], named["copies"]) == (DEVICE, 2, 1)
    assert named["overlap_slowdown"] == 1.25
    assert {"driver", "cuda", "nccl", "triton", "liger", "torch"} <= set(named["machine"])
    without = doctor_document("gpt2", "1x4xH200")["calibration"]
    assert "plan profile --cluster 4xH200" in without["why"]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_probes_of_gpus_are_legal_and_run(ranks: int) -> None:
    for probe in (*probes(ranks, False, DEVICE), message_probe(ranks, DEVICE)):
        if probe is None:
            continue
        plan = probe_plan(probe, ranks, DEVICE)
        assert plan.check() == []
        assert plan.workload.dtype.shorthand == "bf16"
        for strategy in plan.layer_strategies():
            assert unsupported_run(strategy, plan.workload) is None


def simulated_s(plan: Plan, profile: MachineProfile) -> float:
    machine = Machine(plan.cluster, profile)
    return Simulator.for_plan(plan, machine, stack("shardwright")).run(plan).step_time_s


@pytest.mark.parametrize("ranks", [1, 2])
def test_known_host_constants_of_a_gpu_are_recovered(ranks: int) -> None:
    known = {"launch": 4e-6, "kernel": 1.3e-5, "layer_pass": 6e-5, "collective": 2e-5}
    bare = replace(device_profile(ranks), host_s={"launch": 4e-6}, kernel_slowdown=1.0)
    if ranks == 1:
        known["collective"] = 0.0
    true = replace(bare, host_s={**known, "step": 2e-3, "message": 0.0}, kernel_slowdown=1.1)
    found = with_overheads(bare, lambda plan: simulated_s(plan, true), True, lambda: False)
    for probe in probes(ranks, True, DEVICE):
        plan = probe_plan(probe, ranks, DEVICE)
        assert simulated_s(plan, found) == pytest.approx(simulated_s(plan, true), rel=0.01)
    assert found.host_s["launch"] == 4e-6
    assert set(found.host_s) == {"launch", "message", *DEVICE_CONSTANTS}
    assert found.kernel_slowdown == pytest.approx(1.1, abs=0.05)


def test_no_host_constant_of_a_gpu_is_negative() -> None:
    bare = replace(device_profile(1), host_s={}, kernel_slowdown=1.0)
    found = with_overheads(bare, lambda plan: simulated_s(plan, bare) / 3, True, lambda: False)
    assert found.kernel_slowdown >= 1
    assert np.min(list(found.host_s.values())) >= 0


def test_a_profile_is_shipped_whole_or_refused(tmp_path: Path) -> None:
    told = {"torch": "2.13.0", "cuda": "13.0", "driver": "580.65"}
    profile = replace(device_profile(2), machine=told)
    path = ship_profile(profile, tmp_path)
    assert path.name == f"{DEVICE}-2.json"
    assert shipped_profiles(tmp_path) == (profile,)
    with pytest.raises(InputError, match="driver"):
        ship_profile(replace(profile, machine={**told, "driver": "unknown"}), tmp_path)
    with pytest.raises(InputError, match="cpu"):
        ship_profile(replace(profile, device="cpu"), tmp_path)
    path.rename(tmp_path / "other.json")
    with pytest.raises(InputError, match="other"):
        shipped_profiles(tmp_path)


def test_what_is_shipped_loads_and_is_of_gpus() -> None:
    for profile in shipped_profiles():
        assert profile.device != "cpu"
        assert to_document(profile)["kernels"]
