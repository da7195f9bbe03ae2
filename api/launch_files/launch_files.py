"""Files that start a plan's run on the nodes of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import yaml

from ...datasets.catalogue.device import CPU, device
from ...spec.cluster.cluster_spec import DeviceGroup
from ...spec.codec import canonical_json
from ...spec.errors import InputError
from ...spec.plan.plan import Plan

NAME, PORT = "shardwright", 29500
SCRIPT = "launch.sh"
MOST_BYTES = 1_000_000
"""Of a config map, which holds 1 MiB with its keys."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - of a container
"""NCCL's way between processes of a node, 64 MiB in a container unless it is mounted."""


def launch_files(plan: Plan, launcher: str) -> dict[str, str]:
    """Texts by file name: the plan, torchrun on a node, and what starts that on every node.

    Args:
        plan: of one device group; ranks count through its nodes.
        launcher: one of :data:`LAUNCHERS`.

    Raises:
        InputError: a cluster of several device groups.
    """
    groups = plan.cluster.groups
    if len(groups) > 1:
        given = f"{launcher} for {len(groups)} device groups"
        raise InputError("--to", given, "a cluster of one group: nodes are alike", "html")
    (group,) = groups
    files = {"plan.json": canonical_json(plan.to_document()), SCRIPT: _torchrun(group)}
    start = NodeStart(group=group, files=tuple(files), arguments=("--steps", "STEPS"))
    return files | start_files(files, start, launcher, "--to")


class NodeStart(NamedTuple):
    """What starts on each node: a script with files beside it.

    ``arguments``: of the script where nobody types them.
    """

    group: DeviceGroup
    files: tuple[str, ...]
    arguments: tuple[str, ...] = ()


def start_files(
    files: Mapping[str, str], start: NodeStart, launcher: str, field: str
) -> dict[str, str]:
    """Files that start :data:`SCRIPT` on every node.

    Args:
        files: beside the script, itself among them.
        start: names of the files, and the nodes.
        launcher: one of :data:`LAUNCHERS`.
        field: that names the launcher, for errors.

    Raises:
        InputError: more files than a config map holds.
    """
    size = sum(len(text.encode()) for text in files.values())
    if launcher == "k8s" and size > MOST_BYTES:
        allowed = f"a plan of at most {MOST_BYTES} bytes, which a config map holds"
        raise InputError(field, f"k8s for a plan of {size} bytes", allowed, "slurm")
    return LAUNCHERS[launcher](start)


def need_node(nodes: int) -> str:
    """Lines of a script that end it where a node is not told which one it is."""
    if nodes == 1:
        return ""
    return (
        f': "${{NODE_RANK:?the number of this node, 0 to {nodes - 1}}}"\n'
        ': "${HOST:?the address of node 0}"\n'
    )


def _torchrun(group: DeviceGroup) -> str:
    """The script of one node; arguments are those of the worker."""
    nodes, devices = group.nodes, group.devices_per_node
    where = ""
    if nodes > 1:
        where = (
            f'  --nnodes {nodes} --node-rank "$NODE_RANK" \\\n'
            f'  --master-addr "$HOST" --master-port "${{PORT:-{PORT}}}" \\\n'
        )
    return (
        "#!/bin/sh\n"
        "# Starts the ranks of one node: launch.sh [--steps N] [--data PATH] [--checkpoint DIR] …\n"
        f"set -eu\n{need_node(nodes)}"
        f"exec torchrun --nproc-per-node {devices} \\\n{where}"
        '  -m shardwright.executor.worker "$(dirname "$0")/plan.json" "$@"\n'
    )


def _nothing_more(start: NodeStart) -> dict[str, str]:
    return {}


def _slurm(start: NodeStart) -> dict[str, str]:
    """A batch script: one task a node, whose number is the node's rank."""
    group = start.group
    typed = " --steps N …" if start.arguments else ""
    kind = "cpus-per-task" if group.device == CPU else "gpus-per-node"
    return {
        "job.sbatch": (
            "#!/bin/bash\n"
            f"# From this folder, which all nodes share: sbatch job.sbatch{typed}\n"
            f"#SBATCH --job-name={NAME}\n"
            f"#SBATCH --nodes={group.nodes}\n"
            "#SBATCH --ntasks-per-node=1\n"
            f"#SBATCH --{kind}={group.devices_per_node}\n"
            "#SBATCH --exclusive\n"
            "set -eu\n"
            'HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
            "export HOST\n"
            "srun --kill-on-bad-exit=1 sh -c "
            f'\'NODE_RANK=$SLURM_NODEID exec sh ./{SCRIPT} "$@"\' {SCRIPT} "$@"\n'
        )
    }


def _kubernetes(start: NodeStart) -> dict[str, str]:
    """A headless service and an indexed job: they need no operator in the cluster."""
    group = start.group
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    container = {
        "name": "ranks",
        "image": "IMAGE",
        "workingDir": "/plan" if start.arguments else "WORKDIR",
        "command": ["sh", f"/plan/{SCRIPT}", *start.arguments],
        "env": [
            {"name": "HOST", "value": f"{NAME}-0.{NAME}"},
            {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        ],
        "resources": {"limits": {_resource(group): group.devices_per_node}},
        "volumeMounts": [
            {"name": "plan", "mountPath": "/plan"},
            {"name": "shared-memory", "mountPath": SHARED_MEMORY},
        ],
    }
    pod = {
        "subdomain": NAME,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "plan", "configMap": {"name": f"{NAME}-plan"}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": NAME},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME},
        "spec": {
            "completionMode": "Indexed",
            "completions": group.nodes,
            "parallelism": group.nodes,
            "backoffLimit": 0,
            "template": {"spec": pod},
        },
    }
    told = "# Put the image of the framework for IMAGE, its scripts' folder for WORKDIR, then:\n"
    if start.arguments:
        told = "# Put an image with shardwright[run] for IMAGE and a number for STEPS, then:\n"
    told += (
        f"# kubectl create configmap {NAME}-plan {_from_files(start.files)}\n"
        "# kubectl apply -f job.yaml\n"
    )
    return {"job.yaml": told + yaml.safe_dump_all([service, job], sort_keys=False)}


def _from_files(names: Iterable[str]) -> str:
    return " ".join(f"--from-file={name}" for name in names)


def _resource(group: DeviceGroup) -> str:
    """What a node offers to pods, by the device's maker."""
    if group.device == CPU:
        return "cpu"
    return "amd.com/gpu" if device(group.device).family.startswith("MI") else "nvidia.com/gpu"


LAUNCHERS: Mapping[str, Callable[[NodeStart], dict[str, str]]] = {
    "torchrun": _nothing_more,
    "slurm": _slurm,
    "k8s": _kubernetes,
}
"""By target of ``plan export --to``: files beside the plan and torchrun's script."""
