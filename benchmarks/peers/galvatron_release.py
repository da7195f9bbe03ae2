"""One search of a Galvatron release, start-up not timed; JSON.

Run as a script: PACKAGES PROFILES GIB BATCH. Its packages import CUDA libraries that a search does
not use, so bare ones with their names stand in front; no file of it is changed.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

LAYERS, HIDDEN, SEQ_LEN = 32, 4096, 2048
MODEL = "llama2-7b_all"


def main(packages: str, profiles: str, gib: int, batch: int) -> dict[str, Any]:
    """Seconds and samples a second of one search."""
    sys.path.insert(0, packages)
    for name in ("galvatron", "galvatron.core", "galvatron.utils"):
        bare = types.ModuleType(name)
        bare.__path__ = [str(Path(packages, *name.split(".")))]
        sys.modules[name] = bare
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            engine = _engine(Path(packages), profiles, gib, batch)
            start_s = time.perf_counter()
            rate = engine.parallelism_optimization()
            seconds = time.perf_counter() - start_s
        os.chdir("/")
    (distribution,) = importlib.metadata.distributions(name="hetu-galvatron", path=[packages])
    return {"seconds": seconds, "samples_per_s": float(rate), "version": distribution.version}


def _engine(packages: Path, profiles: str, gib: int, batch: int) -> Any:
    _fill_utils()
    from galvatron.core.search_engine.search_engine import (  # type: ignore[import-not-found]
        GalvatronSearchEngine,
    )

    engine = GalvatronSearchEngine(_arguments(profiles, gib, batch))
    layers = {"hidden_size": HIDDEN, "layer_num": LAYERS, "seq_len": SEQ_LEN}
    engine.set_search_engine_info(profiles, [layers], MODEL)
    engine.initialize_search_engine()
    return engine


def _fill_utils() -> None:
    import importlib

    utils = sys.modules["galvatron.utils"]
    for module in ("config_utils", "strategy_utils"):
        module_names = importlib.import_module(f"galvatron.utils.{module}")
        for name in vars(module_names):
            if not name.startswith("__"):
                setattr(utils, name, getattr(module_names, name))


def _arguments(profiles: str, gib: int, batch: int) -> types.SimpleNamespace:
    """Flags of the published run: ZeRO-2, 1F1B, sequence parallelism, tp, sp."""
    path = profiles + os.sep
    return types.SimpleNamespace(
        num_nodes=1, num_gpus_per_node=8, memory_constraint=gib, min_bsz=batch, max_bsz=batch,
        recommend_min_bsz=0, settle_bsz=batch, settle_chunk=-1, bsz_scale=batch,
        search_space="full", sp_space="tp+sp", disable_dp=0, disable_tp=0, disable_vtp=0,
        disable_pp=0, disable_sdp=0, disable_ckpt=0, disable_tp_consec=0, max_tp_deg=8,
        max_pp_deg=8, default_dp_type="zero2", mixed_precision="bf16",
        pipeline_type="pipedream_flush", use_pipeline_costmodel=1, costmodel_coe=1.0,
        sequence_parallel=True, global_memory_buffer=True, async_grad_reduce=True,
        memory_profiling_path=path, time_profiling_path=path, allreduce_bandwidth_config_path=path,
        p2p_bandwidth_config_path=path, overlap_coe_path=path, sp_time_path=path,
        output_config_path="./", fine_grained_mode=1, time_profile_mode="batch",
        memory_profile_mode="static", parallel_search=False, worker=0, log_dir="logs",
        hidden_size=HIDDEN, seq_length=SEQ_LEN,
    )  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
