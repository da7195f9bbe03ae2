"""Files that start a plan: shell scripts that shells take, objects that Kubernetes names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import shardwright as sw
from shardwright.api.launch_files.launch_files import LAUNCHERS, launch_files
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan, load_plan

SIZES: dict[str, Any] = {"global_batch": 16, "seq_len": 128}


def planned(cluster: str, **degrees: Any) -> Plan:
    return sw.simulate("shardwright-demo", cluster, **SIZES, **degrees).report.plan


def written(folder: Path, plan: Plan, launcher: str) -> dict[str, str]:
    files = launch_files(plan, launcher)
    for name, text in files.items():
        (folder / name).write_text(text)
    return files


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_scripts_parse_and_the_plan_comes_back(tmp_path: Path, launcher: str) -> None:
    plan = planned("2x4xH100")
    files = written(tmp_path, plan, launcher)
    assert load_plan(files["plan.json"], "plan.json") == plan
    for name in files:
        if name.endswith((".sh", ".sbatch")):
            subprocess.run(["bash", "-n", str(tmp_path / name)], check=True, timeout=20)


def test_a_node_starts_its_ranks(tmp_path: Path) -> None:
    """A torchrun in front on the path prints what it is given."""
    written(tmp_path, planned("2x4xH100"), "torchrun")
    (tmp_path / "torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["sh", str(tmp_path / "launch.sh"), "--steps", "3"]
    bare = {"PATH": path}
    refused = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=20)
    assert refused.returncode != 0
    assert "the number of this node, 0 to 1" in refused.stderr
    node = {**bare, "NODE_RANK": "1", "HOST": "first"}
    done = subprocess.run(command, env=node, capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.split() == [
        "--nproc-per-node", "4", "--nnodes", "2", "--node-rank", "1", "--master-addr", "first",
        "--master-port", "29500", "-m", "shardwright.executor.worker",
        f"{tmp_path}/plan.json", "--steps", "3",
    ]  # fmt: skip


def test_slurm_asks_for_whole_nodes() -> None:
    script = launch_files(planned("2x4xH100"), "slurm")["job.sbatch"]
    asked = {line.removeprefix("#SBATCH --") for line in script.splitlines() if "#SBATCH" in line}
    assert asked == {
        "job-name=shardwright", "nodes=2", "ntasks-per-node=1", "gpus-per-node=4", "exclusive",
    }  # fmt: skip
    assert "#SBATCH --cpus-per-task=2" in launch_files(planned("local:2"), "slurm")["job.sbatch"]


@pytest.mark.parametrize(
    ("cluster", "resource", "each"),
    [
        ("2x4xH100", "nvidia.com/gpu", 4),
        ("1x8xMI300X", "amd.com/gpu", 8),
        ("local:2", "cpu", 2),
    ],
)
def test_kubernetes_has_a_service_and_an_indexed_job(
    cluster: str, resource: str, each: int
) -> None:
    plan = planned(cluster)
    service, job = yaml.safe_load_all(launch_files(plan, "k8s")["job.yaml"])
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    nodes = plan.cluster.groups[0].nodes
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (nodes, nodes)
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {resource: each}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    host = {row["name"]: row.get("value") for row in container["env"]}["HOST"]
    assert host == f"{job['metadata']['name']}-0.{service['metadata']['name']}"


def test_nodes_that_are_unlike_are_refused() -> None:
    plan = planned("1x2xH100+1x2xA100-80GB", pp=2)
    with pytest.raises(InputError, match="a cluster of one group"):
        launch_files(plan, "slurm")


def test_the_command_writes_a_folder(
    plan: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("--model", "shardwright-demo", "--cluster", "2x4xH100", "--global-batch", "16")
    assert plan("simulate", *asked, "--seq-len", "128", "--json", "a.json").code == 0
    done = plan("export", "a.json", "--to", "slurm")
    assert done.code == 0, done.err
    assert {path.name for path in Path("a-slurm").iterdir()} == {
        "plan.json", "launch.sh", "job.sbatch",
    }  # fmt: skip
    assert "no run of ours has confirmed them" in done.err
