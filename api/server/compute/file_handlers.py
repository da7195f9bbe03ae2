"""Handlers of bodies with a file's text: imports and diagnoses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from ....planner.solve.garbage_collection import garbage_collection_paused
from ....spec.errors import InputError, MissingInputError
from ...diagnose.diagnosis import diagnosed
from ...diagnose.kineto_trace import trace_from
from ...diagnose.measured_run import RunQuestion, measured_run
from ...frameworks.framework_file import framework_file
from ...frameworks.import_plan import imported
from ...frameworks.shipped import framework_of
from ...planning.report import memory_rule, simulate_plan
from ...problem.resolve import Inputs
from .file_requests import DiagnosisBody, ImportBody
from .handlers import MEMORY_SIZES, body_cluster, body_model

PRICING = ("stack", "attention", "overlap", "calibration", *MEMORY_SIZES)
KEY = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
"""A file's key that is named in a problem."""
FLAG = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?![\w.])", re.ASCII)
KEY_OF_FLAG = {"from": "framework", "measured-step": "measured_step_s"}


def handle_import(body: ImportBody) -> dict[str, Any]:
    """Read a framework's file as a plan, and price it.

    Raises:
        InputError: no file of a framework, a key without a counterpart, or one that names another
            file.
    """
    with _told_of_files({body.file.name: "file"}):
        file = framework_file(body.file.text, body.file.name, alone=True)
        framework = framework_of(file, body.framework)
        read = imported(file, framework, _given(body), _strategy(body))
    problem, risk = read.problem, memory_rule(body.oom_risk).risk
    done = simulate_plan(read.plan, problem.stack, problem.measured, read.assumptions, risk)
    return read.to_document(done.report)


def handle_diagnosis(body: DiagnosisBody) -> dict[str, Any]:
    """Explain a measured run, and rank changes of its configuration.

    Raises:
        InputError: no usable log, configuration, plan, figure or trace.
    """
    texts, places = {body.file.name: body.file.text}, {body.file.name: "file"}
    if body.config is not None:
        if body.config.name in texts:
            raise InputError("config: name", body.config.name, "another name than the log's")
        texts[body.config.name], places[body.config.name] = body.config.text, "config"
    question = RunQuestion(
        path=body.file.name,
        config=None if body.config is None else body.config.name,
        framework=body.framework,
        given=_given(body),
        strategy=_strategy(body),
        measured_s=body.measured_step_s,
        tokens_per_s=body.tokens_per_s,
        risk=body.oom_risk,
        texts=texts,
    )
    traced = None if body.trace is None else trace_from(body.trace, "the trace")
    with garbage_collection_paused(), _told_of_files({**places, **_measured_place(body)}):
        return diagnosed(measured_run(question), traced).to_document()


def _measured_place(body: DiagnosisBody) -> dict[str, str]:
    """Source of a step's time, which an error calls the measured step."""
    for name in ("measured_step_s", "tokens_per_s"):
        if getattr(body, name) is not None:
            return {"measured step": f"--{name}"}
    return {"measured step": "file"}


def _given(body: ImportBody) -> Inputs:
    workload = {} if body.workload is None else asdict(body.workload)
    return Inputs(
        model=None if body.model is None else body_model(body.model),
        cluster=None if body.cluster is None else body_cluster(body.cluster),
        **workload,
        **{name: getattr(body, name) for name in PRICING},
    )


def _strategy(body: ImportBody) -> Mapping[str, Any]:
    return {} if body.strategy is None else asdict(body.strategy)


@contextmanager
def _told_of_files(places: Mapping[str, str]) -> Iterator[None]:
    """Errors in the body's words: about a file by its place, with the key that they are about."""
    try:
        yield
    except MissingInputError:
        raise
    except InputError as error:
        field, allowed, near = error.field, _keys_of_flags(error.allowed), error.nearest
        name, _, key = field.partition(": ")
        if (place := places.get(name)) is not None:
            field = place if place.startswith("--") else f"{place}: text"
            allowed = f"at {key}, {allowed}" if KEY.fullmatch(key) else allowed
        near = _keys_of_flags(near) if isinstance(near, str) else near
        raise InputError(field, error.given, allowed, near) from None


def _keys_of_flags(text: str) -> str:
    return FLAG.sub(lambda found: KEY_OF_FLAG.get(found[1], found[1].replace("-", "_")), text)
