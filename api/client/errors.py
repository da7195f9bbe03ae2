"""Problems of the service (RFC 9457) as Python errors.

A problem names the place and what is allowed there, never the input; that is looked up in the
request body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...spec.errors import InfeasibleError, InputError, NotBuiltError, RunError, ShardwrightError

URN = "urn:shardwright:problem:"
CHANGE_SEPARATOR = "; smallest change that fits: "
NOT_BUILT_TEXT = " is not built yet"
WRAPPING_OBJECTS = ("workload", "constraints", "strategy")
FILE_OBJECTS = {"file": "path", "config": "config"}
"""Objects of a file's name and text, by the argument that names it in Python."""
"""Objects of the bodies whose fields are arguments in Python."""
ARGUMENT_OF_KEY = {"plan_id": "plan", "given": "plan"}


def error_of(document: Mapping[str, Any], body: Any = None) -> ShardwrightError:
    """The error that a problem document describes."""
    status, detail = int(document.get("status", 500)), str(document.get("detail", ""))
    kind = str(document.get("type", "")).removeprefix(URN)
    if kind == "infeasible":
        what, _, change = detail.partition(CHANGE_SEPARATOR)
        return InfeasibleError(what, change)
    if status == 401:
        return InputError("token", "none that the service knows", detail)
    faults = document.get("errors") or []
    if faults:
        return _input_error(str(faults[0]["pointer"]), str(faults[0]["msg"]), body)
    if kind == "not-built" and NOT_BUILT_TEXT in detail:
        what, _, instead = detail.partition(NOT_BUILT_TEXT)
        return NotBuiltError(what, instead.removeprefix("; "))
    if kind == "deadline":
        return InputError("deadline_s", "too short a time", detail)
    if status == 404:
        return InputError("job", "what the service does not have", detail)
    if 400 <= status < 500 and kind != "quota" and status not in (429, 499):
        return InputError("request", f"status {status}", detail)
    return RunError(f"the service answered {status}: {detail}")


def _input_error(pointer: str, message: str, body: Any) -> InputError:
    allowed, _, nearest = message.removeprefix("allowed: ").partition("; nearest: ")
    value = _value_at(pointer, body)
    head, _, rest = pointer.removeprefix("/").partition("/")
    if head in FILE_OBJECTS and rest == "text":  # all of it would be no help
        value = _value_at(f"/{head}/name", body)
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    plain = allowed.removeprefix("Input should be ")
    return InputError(_field(pointer), text, plain, nearest or None)


def _field(pointer: str) -> str:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    if parts and parts[0] in WRAPPING_OBJECTS and len(parts) > 1:
        parts = parts[1:]
    if not parts:
        return "request"
    head, *rest = parts
    if head in FILE_OBJECTS:
        return FILE_OBJECTS[head]
    if head in ("set", "sweep"):
        return " ".join([head, *rest[:1]])
    return ".".join([ARGUMENT_OF_KEY.get(head, head), *rest])


def _value_at(pointer: str, body: Any) -> Any:
    """Return the sent value at a pointer; ``nothing`` without one."""
    value = body
    for part in pointer.split("/")[1:]:
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            return "nothing" if value is body or isinstance(value, Mapping) else value
    return value
