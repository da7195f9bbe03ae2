"""What techniques say of the steps that each rank ran."""

from __future__ import annotations

from typing import Any

from ...spec.plan.plan import Plan
from ...spec.plan.technique_groups import used_techniques
from ..engine.engine import Engine
from ..launch.consistency import gather_json


def technique_reports(plan: Plan, engine: Engine) -> dict[str, list[Any]]:
    """What techniques say of each rank's steps, by name; collective where a plan has any."""
    if not used_techniques(plan):
        return {}
    ranks = gather_json(engine.technique_hooks.report(), engine.options.device)
    names = dict.fromkeys(name for report in ranks for name in report)
    return {name: [report.get(name) for report in ranks] for name in names}
