"""One search of Galvatron's main branch, start-up not timed; JSON.

Run as a script: CHECKOUT PROFILES GIB BATCH. The folder is a checkout in which the package and its
compiled core can be imported. Its runtime needs CUDA libraries that a search does not use, so a
bare package stands in front of it, and of the reader of its command line; no file is changed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

LAYERS, HIDDEN, SEQ_LEN = 32, 4096, 2048


def main(checkout: str, profiles: str, gib: int, batch: int) -> dict[str, Any]:
    """Seconds and samples a second of one search."""
    sys.path.insert(0, checkout)
    runtime = types.ModuleType("galvatron.core.runtime")
    runtime.__path__ = [str(Path(checkout, "galvatron", "core", "runtime"))]
    sys.modules[runtime.__name__] = runtime
    if importlib.util.find_spec("omegaconf") is None:
        reader: Any = types.ModuleType("omegaconf")
        reader.OmegaConf = None
        sys.modules["omegaconf"] = reader
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            engine = _engine(profiles, gib, batch)
            start_s = time.perf_counter()
            rate = engine.parallelism_optimization()
            seconds = time.perf_counter() - start_s
        os.chdir("/")
    return {"seconds": seconds, "samples_per_s": float(rate), "version": "main"}


def _engine(profiles: str, gib: int, batch: int) -> Any:
    from galvatron.core.search_engine.args_schema import (  # type: ignore[import-not-found]
        GalvatronSearchArgs,
    )
    from galvatron.core.search_engine.search_engine import (  # type: ignore[import-not-found]
        GalvatronSearchEngine,
    )

    path = profiles + os.sep
    chosen = GalvatronSearchArgs(
        model_info={"hidden_size": HIDDEN},
        hardware_info={"num_nodes": 1, "num_gpus_per_node": 8, "memory_constraint": gib},
        batch_size_info={"min_bsz": batch, "max_bsz": batch, "settle_bsz": batch},
        common_train_info={
            "seq_length": SEQ_LEN, "sequence_parallel": True, "global_memory_buffer": True,
        },
        parallelism_info={
            "default_dp_type": "zero2", "pipeline_type": "pipedream_flush",
            "async_grad_reduce": True, "mixed_precision": "bf16",
        },
        profiling_info={
            "time_profile_mode": "batch", "memory_profile_mode": "static",
            "memory_profiling_path": path, "time_profiling_path": path,
            "allreduce_bandwidth_config_path": path, "p2p_bandwidth_config_path": path,
            "overlap_coe_path": path, "sp_time_path": path,
        },
        options_info={"log_dir": "logs", "output_config_path": "./"},
    )  # fmt: skip
    engine = GalvatronSearchEngine(chosen)
    layers = {"hidden_size": HIDDEN, "layer_num": LAYERS, "seq_len": SEQ_LEN}
    engine.set_search_engine_info(profiles, [layers], "llama2-7b")
    engine.initialize_search_engine()
    return engine


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
