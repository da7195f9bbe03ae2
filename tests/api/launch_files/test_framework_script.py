"""A framework's files with scripts that start them: what the starter is given on a node."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.api.frameworks.shipped import FRAMEWORKS

Plan = Callable[..., Any]
STARTED = tuple(f.name for f in FRAMEWORKS if f.write is not None and f.by_node)
LLAMA = ("--model", "llama-3-8b", "--cluster", "2x8xH100", "--global-batch", "32",
         "--seq-len", "2048", "--shard", "zero1", "--dtype", "bf16")  # fmt: skip


@pytest.fixture(scope="module")
def plan_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    from shardwright.api.cli.main import run

    path = tmp_path_factory.mktemp("plan") / "a.json"
    assert run(["simulate", *LLAMA, "--json", str(path)]) == 0
    return path.read_text(encoding="utf-8")


@pytest.fixture
def folder(plan_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text(plan_text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", STARTED)
def test_a_node_starts_its_ranks_from_any_folder(plan: Plan, folder: Path, name: str) -> None:
    """Starters in front on the path print what they are given."""
    done = plan("export", "a.json", "--to", name, "--out", "run", "--launcher", "slurm",
                "--json", "out.json")  # fmt: skip
    assert done.code == 0, done.err
    document = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert set(document["launch_files"]) == {"launch.sh", "job.sbatch"}
    written = {path.name for path in Path("run").iterdir()}
    assert written == {*document["files"], *document["launch_files"]}
    for script in document["launch_files"]:
        subprocess.run(["bash", "-n", f"run/{script}"], check=True, timeout=20)
    for starter in ("torchrun", "accelerate"):
        Path(starter).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        Path(starter).chmod(0o755)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    node = {"PATH": f"{folder}:{os.environ['PATH']}", "NODE_RANK": "1", "HOST": "first"}
    asked: dict[str, Any] = {"cwd": elsewhere, "capture_output": True, "text": True, "timeout": 20}
    given = subprocess.run(
        ["sh", str(folder / "run" / "launch.sh"), "more"], env=node, check=True, **asked
    ).stdout.split()
    assert given[-1] == "more"
    assert "first" in given or "first:29500" in given
    assert not {"HOST", "RANK"} & set(given)
    named = [word for word in given if str(folder / "run") in word]
    assert name == "megatron" or named, given  # its arguments are read from the file themselves
    bare = subprocess.run(
        ["sh", str(folder / "run" / "launch.sh")], env={"PATH": node["PATH"]}, check=False, **asked
    )
    assert "the number of this node, 0 to 1" in bare.stderr


def test_a_config_map_holds_all_files(plan: Plan, folder: Path) -> None:
    done = plan("export", "a.json", "--to", "torchtitan", "--out", "run", "--launcher", "k8s")
    assert done.code == 0, done.err
    assert "launch.sh, job.yaml" in done.out
    text = (folder / "run" / "job.yaml").read_text(encoding="utf-8")
    assert "--from-file=torchtitan.toml --from-file=launch.sh" in text
    _, job = yaml.safe_load_all(text)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "/plan/launch.sh"]
    assert container["workingDir"] == "WORKDIR"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--to", "verl", "--launcher", "slurm"), "verl starts the ranks of all nodes itself"),
        (("--to", "html", "--launcher", "slurm"), "nothing beside --to html"),
        (("--to", "megatron", "--launcher", "slrum"), "nearest: slurm"),
    ],
)
def test_what_starts_nothing_is_refused(
    plan: Plan, folder: Path, flags: tuple[str, ...], why: str
) -> None:
    done = plan("export", "a.json", "--out", "run", *flags)
    assert done.code == 2
    assert why in done.err
    assert not (folder / "run").exists()
