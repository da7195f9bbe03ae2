"""Operations of the children: one request, one answer.

Nothing here reads a path from a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from ....spec.codec import parse_json
from ....spec.errors import (
    InfeasibleError,
    InputError,
    MissingInputError,
    ShardwrightError,
    UnknownKeyError,
)
from ...planning.uniform_plan import strategy_flags
from ...problem.stored_calibrations import CalibrationNeededError
from ..problems import (
    INFEASIBLE,
    INVALID,
    MAX_TEXT,
    MAX_WHOLE_TEXT,
    NOT_BUILT,
    TOO_LARGE,
    encode,
    encode_report,
    problem,
)
from .body_faults import validation_problem
from .file_handlers import handle_diagnosis, handle_import
from .file_requests import DIAGNOSIS_ADAPTER, IMPORT_ADAPTER, DiagnosisBody, ImportBody
from .handlers import (
    check_plan_body,
    check_run_body,
    check_what_if_body,
    checked_body,
    handle_plan,
    handle_simulation,
    handle_what_if,
    named_calibration,
    what_if_deadline,
)
from .lending import CALIBRATION_NEEDED, lent_text
from .profiling import fit_uploaded_table
from .progress_events import EmitEvent
from .requests import (
    PLAN_ADAPTER,
    PROFILE_ADAPTER,
    RUN_ADAPTER,
    RUN_S,
    SIMULATION_ADAPTER,
    WHAT_IF_ADAPTER,
    PlanBody,
    ProfileBody,
    RunBody,
    SimulationBody,
    WhatIfBody,
)
from .size_handler import answers_soon, check_size_body, handle_size, size_deadline
from .size_request import SIZE_ADAPTER, SizeBody
from .stored import STORED_OPERATIONS

StatusAndBody = tuple[int, bytes]
FLAG_POINTERS = {
    "global_batch": "/workload/global_batch",
    "global_batch_tokens": "/workload/global_batch_tokens",
    "seq_len": "/workload/seq_len",
    "dtype": "/workload/dtype",
    "grad_dtype": "/workload/grad_dtype",
    "communication_dtype": "/workload/communication_dtype",
    "master_dtype": "/workload/master_dtype",
    "moment_dtype": "/workload/moment_dtype",
    "optimizer": "/workload/optimizer",
    "trainable": "/workload/trainable",
    "expert_load": "/workload/expert_load",
    "lengths": "/workload/lengths",
    "task": "/workload/task",
    "memory_gib": "/constraints/memory_gib",
    "host_gib": "/constraints/host_gib",
    "nvme_gib": "/constraints/nvme_gib",
    "oom_risk": "/constraints/oom_risk",
    "pin": "/constraints/pins",
    "for": "/constraints/framework",
    "from": "/framework",
    "measured_step": "/measured_step_s",
    "data": "/rows",
}
POINTER_ROOM = 60
"""Characters of a problem's text that its pointer and words of ours take."""
BODY_KEYS = ("model", "cluster", "plan", "prices", "rows", "name", "file", "config")
STRATEGY_FLAGS = strategy_flags()
BODIES: dict[str, type[Any]] = {
    "plan": PlanBody,
    "check-plan": PlanBody,
    "what-if": WhatIfBody,
    "check-what-if": WhatIfBody,
    "check-run": RunBody,
    "check-profile": ProfileBody,
    "simulation": SimulationBody,
    "import": ImportBody,
    "diagnosis": DiagnosisBody,
    "size": SizeBody,
    "check-size": SizeBody,
}
"""What a body is validated as, by the name of the operation."""


def run_operation(
    operation: str,
    body: bytes,
    limit_s: float,
    emit: EmitEvent | None = None,
    on_fault: Callable[[Exception], None] | None = None,
) -> StatusAndBody:
    """Answer an operation by a status and a body; failures are problems, none raised.

    Args:
        operation: ``plan``, ``simulation``, ``what-if``, ``size``, ``import``, ``diagnosis``;
            ``check-`` and ``plan``, ``what-if``, ``size`` or ``run``: whether such a job could be
            submitted; ``check-profile``, which fits a calibration to a table; or one of
            ``STORED_OPERATIONS``.
        body: as received.
        limit_s: seconds in which to answer.
        emit: called with events of a search: a name and JSON.
        on_fault: called with an error of ours, for the log.
    """
    ends_s = time.monotonic() + limit_s
    try:
        parsed = parse_json(body, "body")  # refuses repeated keys and numbers that are not finite
        if operation == "plan":
            plan_body = PLAN_ADAPTER.validate_json(body)
            return 200, encode_report(handle_plan(plan_body, ends_s, emit).to_document())
        if operation == "check-plan":
            plan_body = PLAN_ADAPTER.validate_json(body)
            check_plan_body(plan_body)
            lent = lent_text(plan_body.calibration)
            return 200, checked_body(parsed, plan_body.deadline_s, None, lent)
        if operation in ("what-if", "check-what-if"):
            what_if_body = WHAT_IF_ADAPTER.validate_json(body)
            if operation == "what-if":
                return 200, encode(handle_what_if(what_if_body, ends_s))
            lent = lent_text(named_calibration(what_if_body))
            check_what_if_body(what_if_body)
            limit_s = what_if_deadline(what_if_body)
            return 200, checked_body(parsed, limit_s, what_if_body.plan_id, lent)
        if operation in ("size", "check-size"):
            return 200, _sized(operation, parsed, SIZE_ADAPTER.validate_json(body), ends_s, emit)
        if operation == "check-run":
            run_body = RUN_ADAPTER.validate_json(body)
            check_run_body(run_body)
            lent, limit_s = lent_text(named_calibration(run_body)), run_body.deadline_s or RUN_S
            return 200, checked_body(parsed, limit_s, run_body.plan_id, lent)
        if operation in STORED_OPERATIONS:
            return 200, STORED_OPERATIONS[operation](parsed)
        return 200, AT_ONCE[operation](body)
    except CalibrationNeededError as run_body:
        return CALIBRATION_NEEDED, encode({"calibration": run_body.name})
    except ShardwrightError as error:
        return 422, encode(_error_problem(error, operation))
    except ValidationError as error:
        return 422, encode(validation_problem(error, BODIES[operation]))
    except KeyboardInterrupt:  # a job that someone cancelled
        return 499, encode(problem(499, "it was cancelled before any plan was found"))
    except (MemoryError, RecursionError):
        return _too_large()
    except Exception as error:  # a fault of ours must cost this request only
        return _internal_error(error, on_fault)


AT_ONCE: dict[str, Callable[[bytes], bytes]] = {
    "check-profile": lambda body: encode(fit_uploaded_table(PROFILE_ADAPTER.validate_json(body))),
    "simulation": lambda body: encode_report(
        handle_simulation(SIMULATION_ADAPTER.validate_json(body))
    ),
    "import": lambda body: encode_report(handle_import(IMPORT_ADAPTER.validate_json(body))),
    "diagnosis": lambda body: encode(handle_diagnosis(DIAGNOSIS_ADAPTER.validate_json(body))),
}
"""Operations that need nothing but their body, by name."""


def _sized(
    operation: str, parsed: Any, body: SizeBody, ends_s: float, emit: EmitEvent | None
) -> bytes:
    if operation == "size":
        return encode(handle_size(body, ends_s, emit))
    lent = lent_text(body.calibration)
    check_size_body(body)
    return checked_body(parsed, size_deadline(body), None, lent, soon=answers_soon(body))


def _internal_error(
    error: Exception, on_fault: Callable[[Exception], None] | None
) -> StatusAndBody:
    if on_fault is not None:
        on_fault(error)
    return 500, encode(problem(500, f"{type(error).__name__}; please report it"))


def _too_large() -> StatusAndBody:
    detail = "the request needs more memory or depth than one request may use"
    return 422, encode(problem(422, detail, TOO_LARGE))


def _error_problem(error: ShardwrightError, operation: str) -> dict[str, Any]:
    if isinstance(error, MissingInputError):
        pointers = {_error_pointer(flag): value for flag, value in error.usual.items()}
        faults = [
            {"pointer": pointer, "msg": f"allowed: a positive whole number; nearest: {value}"}
            for pointer, value in pointers.items()
        ]
        detail = f"{' and '.join(pointers)}: got nothing; allowed: {error.allowed}"
        return problem(422, detail, INVALID, faults)
    if isinstance(error, InputError):
        pointer = _error_pointer(error.field)
        if operation not in ("plan", "check-plan"):  # the others have no such object
            pointer = pointer.removeprefix("/constraints")
        most = MAX_WHOLE_TEXT if isinstance(error, UnknownKeyError) else MAX_TEXT
        message = _allowed_text(error, most)
        faults = [{"pointer": pointer, "msg": message}]
        return problem(422, f"{pointer or 'body'}: {message}", INVALID, faults, most)
    kind = INFEASIBLE if isinstance(error, InfeasibleError) else NOT_BUILT
    return problem(422, str(error), kind)


def _allowed_text(error: InputError, most: int) -> str:
    near = "" if error.nearest in (None, "") else f"; nearest: {str(error.nearest)[:100]}"
    room = most - len(near) - POINTER_ROOM
    allowed = error.allowed if len(error.allowed) <= room else error.allowed[: room - 1] + "…"
    return f"allowed: {allowed}{near}"


def _error_pointer(field: str) -> str:
    flag, _, key = field.partition(" ")
    if flag in ("--set", "--sweep") and key:
        return f"/{flag.removeprefix('--')}/{key}"
    head, _, path = field.partition(": ")
    name = head.removeprefix("--").split(" ")[0].replace("-", "_")
    parts = [part for part in path.split(".") if part and " " not in part]
    if field.startswith("--") or name in BODY_KEYS:
        start = FLAG_POINTERS.get(name) or ("/strategy/" if name in STRATEGY_FLAGS else "/") + name
        return start + "".join(f"/{part}" for part in parts)
    return "".join(f"/{part}" for part in parts)
