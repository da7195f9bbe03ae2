"""How each technique runs on real ranks."""

from __future__ import annotations

from ...spec.techniques import TECHNIQUES as VALUES
from ..technique import Runs, RunTechniques
from . import compile, cpu_offload

TECHNIQUES: Runs = (compile.TECHNIQUE, cpu_offload.TECHNIQUE)
"""One entry a module of this package, in the order of ``spec.techniques``."""

SHIPPED = RunTechniques(values=VALUES, runs=TECHNIQUES)
"""What a run knows unless it says otherwise."""
