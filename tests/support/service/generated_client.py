"""A program that drives a service by a client that was made of its description.

``python generated_client.py URL``, with the generated package on the path; prints what it found as
JSON.
"""

from __future__ import annotations

import json
import sys
import time

from service_client import Client  # type: ignore[import-not-found]
from service_client.api.default import (  # type: ignore[import-not-found]
    cancel_plan,
    create_plan,
    create_simulation,
    get_plan,
    health,
    list_models,
    list_plans,
)
from service_client.models import (  # type: ignore[import-not-found]
    NewJob,
    PlanBody,
    Problem,
    Report,
    SimulationBody,
)

ASKED = {
    "model": {"layers": 2, "hidden": 64, "heads": 4, "vocab": 300},
    "cluster": "2xH100",
    "workload": {"global_batch": 4, "seq_len": 64},
}


def main(url: str) -> dict[str, object]:
    """Ask for a simulation and a plan, look it up, list it, cancel it, and make a mistake."""
    client = Client(base_url=url, timeout=45)
    simulated = create_simulation.sync(
        client=client, body=SimulationBody.from_dict({**ASKED, "strategy": {"tp": 2}})
    )
    made = create_plan.sync(
        client=client, body=PlanBody.from_dict(ASKED), idempotency_key="generated"
    )
    again = create_plan.sync(
        client=client, body=PlanBody.from_dict(ASKED), idempotency_key="generated"
    )
    job = get_plan.sync(made.id, client=client)
    while job.state in ("queued", "running"):
        time.sleep(0.1)
        job = get_plan.sync(made.id, client=client)
    cancelled = cancel_plan.sync_detailed(made.id, client=client)
    wrong = create_simulation.sync(
        client=client, body=SimulationBody.from_dict({**ASKED, "model": "no-such-model"})
    )
    return {
        "health": health.sync(client=client).status,
        "models": len(list_models.sync(client=client).models),
        "simulated": isinstance(simulated, Report) and simulated.prediction.step_time_s,
        "accepted": isinstance(made, NewJob),
        "same_job": made.id == again.id,
        "state": job.state,
        "answer": job.answer.to_dict()["plan_hash"],
        "listed": made.id in [item.id for item in list_plans.sync(client=client, limit=100).items],
        "cancelled": int(cancelled.status_code),
        "problem": isinstance(wrong, Problem) and wrong.status,
        "pointer": wrong.errors[0].pointer,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
