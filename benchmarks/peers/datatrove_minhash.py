"""datatrove's own MinHash pipeline on a folder of JSONL; prints seconds and the documents kept.

Usage: ``python datatrove_minhash.py FOLDER``. Its defaults, but for the language's splitter.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    """Signatures, buckets, clusters and filter, one after another in one process."""
    from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found]
    from datatrove.pipeline.dedup import (  # type: ignore[import-not-found]
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.readers import JsonlReader  # type: ignore[import-not-found]
    from datatrove.pipeline.writers import JsonlWriter  # type: ignore[import-not-found]
    from datatrove.utils.typeshelper import Languages  # type: ignore[import-not-found]

    config, work = MinhashConfig(), folder / "work"
    reader = JsonlReader(str(folder / "texts"), doc_progress=False)
    signatures, buckets, removed = (str(work / name) for name in ("signatures", "buckets", "out"))
    writer = JsonlWriter(str(work / "kept"), compression=None)
    stages: list[tuple[int, list[Any]]] = [
        (1, [reader, MinhashDedupSignature(signatures, config, language=Languages.english)]),
        (config.num_buckets, [MinhashDedupBuckets(signatures, buckets, config=config)]),
        (1, [MinhashDedupCluster(buckets, removed, config=config)]),
        (1, [reader, MinhashDedupFilter(removed), writer]),
    ]
    start_s = time.monotonic()
    for number, (tasks, pipeline) in enumerate(stages):
        logs = str(work / f"logs{number}")
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=logs).run()
    seconds = time.monotonic() - start_s
    kept = [
        json.loads(line)["id"]
        for path in sorted((work / "kept").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    print(json.dumps({"seconds": seconds, "kept": kept}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
