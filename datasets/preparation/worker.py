"""A process that does tasks of a preparation: one JSON document a line, in and out."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TextIO

from ...spec.errors import InputError
from ..recipes.data_stage import Stages
from .tasks import job_of, perform
from .workers import refusal


def stages_at(place: str) -> Stages:
    """The tuple of stages at ``module:NAME``."""
    module, _, name = place.partition(":")
    stages: Stages = getattr(importlib.import_module(module), name)
    return stages


def serve(lines: TextIO, answers: TextIO, stages: Stages) -> None:
    """Do the tasks that come in, until none does; the first line is the job."""
    job = job_of(json.loads(lines.readline()), stages)
    for line in lines:
        answer: dict[str, object] = {}
        try:
            perform(job, json.loads(line))
        except InputError as error:
            answer = {"refused": refusal(error)}
        except Exception as error:  # told to the parent, in one line
            answer = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout, stages_at(sys.argv[1]))
