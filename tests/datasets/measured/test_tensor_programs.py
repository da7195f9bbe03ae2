"""The bundled tensor programs: whole, timed, and with provenance."""

from __future__ import annotations

import json

import numpy as np

from shardwright.costmodel.programs.packed import unpacked
from shardwright.datasets.measured.timed_grid import FOLDER


def test_tensor_programs_are_whole_and_say_how_they_were_made() -> None:
    facts = json.loads((FOLDER / "programs.json").read_text(encoding="utf-8"))
    with np.load(FOLDER / "programs.npz", allow_pickle=False) as arrays:
        programs = unpacked(arrays)
        count = len(programs)
        assert {len(arrays[name]) for name in ("family", "time_s", "variance_s2", "layer")} == {
            count
        }
        alone = arrays["layer"] < 0
        assert (arrays["time_s"][alone] >= 5e-6).all()
        assert (arrays["agreement"][alone] <= 1.1 + 1e-6).all()
        assert set(arrays["layer_number"].tolist()) <= set(arrays["layer"][~alone].tolist())
        assert arrays["family"].max() < len(facts["families"])
        keys = np.concatenate([arrays["family"][:, None], arrays["seed"]], axis=1)
        assert len(np.unique(keys, axis=0)) == count
    assert facts["tried"] >= count
    assert "apache-tvm" in facts["compiler"]
    assert all(leaf.accesses for program in programs for leaf in program.leaves)
