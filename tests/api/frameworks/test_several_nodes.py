"""Frameworks' files of several nodes: node counts are written, and read against the cluster."""

from __future__ import annotations

import pytest
import yaml

from shardwright.api.frameworks.export_plan import export_plan
from shardwright.api.frameworks.framework_file import framework_file
from shardwright.api.frameworks.import_plan import imported
from shardwright.api.frameworks.shipped import framework_named
from shardwright.api.problem.resolve import Inputs
from shardwright.spec.errors import InputError

VERL = framework_named("verl", "--to")
TEXT = (
    "actor_rollout_ref:\n  actor:\n    strategy: STRATEGY\n    ppo_mini_batch_size: 64\n"
    "    ppo_micro_batch_size_per_gpu: 1\n  rollout:\n    n: 4\n"
    "trainer:\n  nnodes: 2\n  n_gpus_per_node: 8\n"
)


def read(text: str, cluster: str, strategy: str = "fsdp2"):
    given = Inputs(cluster=cluster, model="llama-3-8b")
    file = framework_file(text.replace("STRATEGY", strategy), "verl.yaml")
    return imported(file, VERL, given, {})


@pytest.mark.parametrize("strategy", ["fsdp2", "megatron"])
def test_verl_on_two_nodes_comes_back(strategy: str) -> None:
    given = read(TEXT, "16xH100-80GB", strategy)
    made = export_plan(given.plan, given.problem.stack, None, VERL)
    assert made.lost == ()
    assert made.plan == given.plan
    trainer = yaml.safe_load(made.files["verl.yaml"])["trainer"]
    assert trainer == {"nnodes": 2, "n_gpus_per_node": 8}
    assert read(made.files["verl.yaml"], "16xH100-80GB").plan == given.plan
    assert made.launch.startswith("ray start --head")
    assert made.launch.count("verl.trainer.main_ppo") == 1


def test_verl_on_one_node_starts_no_ray() -> None:
    given = read(TEXT.replace("nnodes: 2", "nnodes: 1"), "8xH100-80GB")
    made = export_plan(given.plan, given.problem.stack, None, VERL)
    assert made.launch.startswith("python3 -m verl.trainer.main_ppo")


def test_verl_on_another_number_of_nodes_is_refused() -> None:
    with pytest.raises(InputError, match=r"16: trainer.nnodes x trainer.n_gpus_per_node"):
        read(TEXT, "8xH100-80GB")
