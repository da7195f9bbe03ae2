"""Run the items of evidence about the service.

    PYTHONPATH=benchmarks:tests/support .venv/bin/python benchmarks/service_evidence.py

takes the flags of ``evidence.py``: ``--quick`` is a glance at each of ``service``,
``service_load``, ``service_soak``, ``service_hostile``, ``service_attack`` and ``service_kills``.
"""

from __future__ import annotations

import sys

import evidence

ITEMS = tuple(name for name in evidence.NAMES if name.startswith("service"))

if __name__ == "__main__":
    raise SystemExit(evidence.main(["--only", *ITEMS, *sys.argv[1:]]))
