"""Public configurations: their keys and values, read as plans or refused by key."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from shardwright.api.frameworks.import_plan import import_plan
from shardwright.api.planning.report import simulate_plan
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.spec.errors import InputError

FOLDER = Path(__file__).parent / "samples"
SAMPLES = tomllib.loads((FOLDER / "index.toml").read_text(encoding="utf-8"))["sample"]
SOME = [*SAMPLES[::6], *(sample for sample in SAMPLES if "refused" in sample)]


def read(sample):
    known = ("model", "global_batch", "seq_len")
    given = {name: sample[name] for name in known if name in sample}
    cluster = f"{sample['devices']}xH100-80GB"
    return import_plan(str(FOLDER / sample["file"]), None, Inputs(cluster=cluster, **given), {})


def check(sample):
    if "refused" in sample:
        with pytest.raises(InputError, match=sample["refused"]):
            read(sample)
        return
    found = read(sample)
    assert found.framework.name == sample["framework"]
    assert found.plan.hash.startswith(sample["plan"])


@pytest.mark.parametrize("sample", SOME, ids=lambda sample: sample["file"])
def test_a_public_configuration_is_read(sample):
    check(sample)


@pytest.mark.evidence
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["file"])
def test_every_public_configuration_is_read(sample):
    check(sample)


def test_nearly_all_are_read():
    refused = [sample for sample in SAMPLES if "refused" in sample]
    assert len(SAMPLES) >= 60
    assert len(refused) <= 0.05 * len(SAMPLES)


def test_a_file_costs_what_the_same_plan_costs_typed_by_hand(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        '[model]\nname = "llama3"\nflavor = "8B"\n'
        "[training]\nlocal_batch_size = 1\nseq_len = 8192\n"
        '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n'
        "[compile]\nenable = true\n"
    )
    found = import_plan(str(path), None, Inputs(cluster="8xH100-80GB"), {})
    problem = resolve(
        Inputs(
            model="llama-3.1-8b",
            cluster="8xH100-80GB",
            global_batch=8,
            seq_len=8192,
            dtype="bf16",
            optimizer="adamw",
            stack="torchtitan",
        )
    )
    typed, _ = uniform_plan(problem, UniformStrategy(shard="zero3", recompute="selective-ops"))
    assert found.plan == typed
    steps = {
        simulate_plan(found.plan, stack, None, ()).report.prediction.step_time_s
        for stack in (found.problem.stack, problem.stack)
    }
    assert len(steps) == 1


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("run.py", "config = 1", "a Python configuration"),
        ("run.toml", "a = ", "TOML"),
        ("run.yaml", "", "an empty file"),
        ("run.yaml", "- 1\n", "list"),
        ("run.yaml", "x: 1\n", "a file of megatron"),
        ("run.args", "--num-layers $LAYERS --hidden-size 8", "no shell is run"),
        ("run.args", "nothing here", "no flags"),
        ("run.args", "--num-layers 2 --hidden-size x --num-attention-heads 1", "hidden_size"),
        ("run.toml", '[parallelism]\ntensor_parallel_degree = "8"\n', "tensor_parallel_degree"),
        ("run.json", '{"zero_optimization": {"stage": 7}, "train_batch_size": 8}', "stage"),
    ],
)
def test_bad_files_get_one_line(tmp_path, name, text, match):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=match):
        import_plan(str(path), None, Inputs(cluster="8xH100-80GB", model="gpt2", seq_len=512), {})


def test_a_flag_that_the_file_decides_is_refused():
    sample = next(s for s in SAMPLES if s["framework"] == "torchtitan" and "plan" in s)
    given = Inputs(cluster=f"{sample['devices']}xH100-80GB", seq_len=77, model=sample.get("model"))
    with pytest.raises(InputError, match="--seq-len"):
        import_plan(str(FOLDER / sample["file"]), None, given, {})
    with pytest.raises(InputError, match="--cluster"):
        import_plan(str(FOLDER / sample["file"]), None, Inputs(), {})
