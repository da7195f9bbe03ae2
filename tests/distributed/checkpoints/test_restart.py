"""Under torchrun a run whose rank dies is started again, and goes on where it saved last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from generators.plan_cases import Case, Sizes

from shardwright.executor.launch.fault_injection import VARIABLE
from shardwright.spec.codec import canonical_json

TEXT = Sizes(blocks=2, vocab=320)
LAUNCHER = (
    *("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"),
    *("-m", "shardwright.executor.worker"),
)


@pytest.mark.timeout(300)
def test_a_restarted_run_goes_on_by_itself(tmp_path: Path) -> None:
    """Rank 1 is killed in step 6; the run that follows is held against a single process."""
    plan = Case(name="restart", sizes=TEXT, ranks=2, stages=2, micro_batch=2, seq_len=32).plan()
    (tmp_path / "plan.json").write_text(canonical_json(plan))
    job = ("plan.json", "--steps", "8", "--checkpoint", "saved", "--every", "2", "--keep", "1")
    fault = {"rank": 1, "step": 6, "how": "kill"}
    done = subprocess.run(
        [sys.executable, "-m", *LAUNCHER, *job, "--verify", "--json", "result.json"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONSAFEPATH": "1",
            "OMP_NUM_THREADS": "1",
            VARIABLE: json.dumps([fault]),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    steps = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("step")]
    result = json.loads((tmp_path / "result.json").read_text())
    begun = result["checkpoint"]["resumed"]["step"]
    assert begun in (2, 4)  # that of step 4 may still have been under way
    assert steps == [*range(1, 6), *range(begun + 1, 9)]
    assert f"going on after step {begun} from saved" in done.stderr
    assert len(result["measured"]["losses"]) == 8 - begun
    assert result["verify"]["max_rel_loss_diff"] <= result["verify"]["bounds"]["loss"]
    # one is kept, and the one that verification starts from is spared
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert names == {f"step-{begun:08d}", "step-00000008", "losses.csv", ".lock"}
    assert (tmp_path / "saved" / ".lock").read_text() == ""  # taken over, and given back
    rows = (tmp_path / "saved" / "losses.csv").read_text().splitlines()[1:]
    assert [int(row.split(",")[0]) for row in rows] == list(range(1, 9))
