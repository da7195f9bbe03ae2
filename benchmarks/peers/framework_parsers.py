"""A framework's own parser on files written for it; prints its version and what it refused.

Usage: ``python framework_parsers.py NAME PACKAGES FOLDER``, with a folder of files and
``about.json`` for each plan. Each parser gives back degrees, which must be those of the plan.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

About = dict[str, Any]


def torchtitan(folder: Path, about: About) -> dict[str, int]:
    """``ConfigManager`` of the releases that read TOML."""
    from torchtitan.config import ConfigManager  # type: ignore[import-not-found]

    config = ConfigManager().parse_args(["--job.config_file", str(folder / "torchtitan.toml")])
    split, training = config.parallelism, config.training
    return {
        "tp": split.tensor_parallel_degree,
        "pp": split.pipeline_parallel_degree,
        "cp": split.context_parallel_degree,
        "global_batch": training.global_batch_size,
    }


def deepspeed(folder: Path, about: About) -> dict[str, int]:
    """``DeepSpeedConfig`` of a rank that knows of as many replicas as the plan has."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed.runtime import config as module  # type: ignore[import-not-found]

    class Mesh:
        def get_data_parallel_world_size(self) -> int:
            return int(about["dp"])

    with mock.patch.object(module.dist, "get_rank", return_value=0):  # no group is made
        config = module.DeepSpeedConfig(str(folder / "ds_config.json"), mpu=Mesh())
    return {"zero": config.zero_config.stage, "global_batch": config.train_batch_size}


def accelerate(folder: Path, about: About) -> dict[str, int]:
    """``load_config_from_file``, and ``ParallelismConfig`` of its section."""
    from accelerate import ParallelismConfig
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(folder / "accelerate.yaml"))
    prefix = "parallelism_config_"
    section = {k.removeprefix(prefix): v for k, v in (config.parallelism_config or {}).items()}
    found = {"devices": config.num_processes}
    if not section:
        return found
    mesh = ParallelismConfig(**section)
    return {**found, "tp": mesh.tp_size, "cp": mesh.cp_size}


PARSERS: dict[str, Callable[[Path, About], dict[str, int]]] = {
    "torchtitan": torchtitan,
    "deepspeed": deepspeed,
    "accelerate": accelerate,
}


def main(name: str, packages: str, folder: Path) -> None:
    """Parse the files of every plan below a folder."""
    sys.path.insert(0, packages)
    refused, count = [], 0
    for path in sorted(folder.iterdir()):
        about = json.loads((path / "about.json").read_text(encoding="utf-8"))
        count += 1
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                found = PARSERS[name](path, about)
        except (Exception, SystemExit) as error:  # whatever a parser says no with
            last = (said.getvalue().strip().splitlines() or [""])[-1]
            refused.append(f"{path.name}: {type(error).__name__} {error} {last}"[:200])
            continue
        wrong = {key: value for key, value in found.items() if about[key] != value}
        if wrong:
            refused.append(f"{path.name}: read {wrong}, the plan has "
                           f"{ {key: about[key] for key in wrong} }")  # fmt: skip
    version = importlib.metadata.version(name)
    print(json.dumps({"version": version, "plans": count, "refused": refused}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
