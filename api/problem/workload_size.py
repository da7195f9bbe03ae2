"""Global batch, sequence length and documents' lengths from flags, defaults and objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...planner.solve.problem import ObjectiveChoice
from ...spec.codec import from_document
from ...spec.errors import InputError, MissingInputError
from ...spec.limits import MAX_SAMPLES, MAX_SEQ_LEN
from ...spec.model.model_spec import EmbeddingLayer, ModelSpec
from ...spec.model.towers import inserted_tokens
from ...spec.report.report import Assumption
from ...spec.workload.document_lengths import DocumentLengths
from ...spec.workload.workload import Workload
from .objective import initial_sequence

if TYPE_CHECKING:
    from .resolve import Inputs

LengthsLike = str | Path | Mapping[str, Any] | DocumentLengths
DEFAULT_BATCH, DEFAULT_SEQ_LEN = 8, 256
USUAL_BATCH, USUAL_SEQ_LEN = 512, 4096
LEAST_BATCH, DEVICE_BATCH = 16, 8
"""Samples suggested at least, and for each device, up to the usual batch or one for each."""


def ignored_size_notes(inputs: Inputs, choice: ObjectiveChoice) -> list[Assumption]:
    """Note on a typed size that the objective searches for."""
    sizes = {"largest-batch": "global_batch", "largest-sequence": "seq_len"}
    size = sizes.get(choice.objective)
    value = None if size is None else getattr(inputs, size)
    if value is None:
        return []
    why = f"given, and no limit: {choice.objective} finds it"
    return [Assumption(path=f"workload.{size}", value=value, why=why)]


def with_initial_size(inputs: Inputs, model: ModelSpec, choice: ObjectiveChoice) -> Inputs:
    """Inputs with an initial size, if the objective maximizes one."""
    if choice.objective == "largest-batch" and inputs.global_batch_tokens is None:
        return replace(inputs, global_batch=inputs.global_batch or choice.grain)
    if choice.objective == "largest-sequence":
        if inputs.global_batch_tokens is not None:
            allowed = "--global-batch instead, for the sequence is asked for"
            raise InputError("--global-batch-tokens", inputs.global_batch_tokens, allowed)
        return replace(inputs, seq_len=initial_sequence(model, choice, inputs.seq_len))
    return inputs


def usual_seq_len(model: ModelSpec) -> int:
    """4096 tokens, or as many as a model takes."""
    tower_seq_len = model.towers[0].seq_len
    if tower_seq_len is not None and len(model.towers) == 1:
        return tower_seq_len
    limits = [x.positions for x in model.kinds() if isinstance(x, EmbeddingLayer) and x.positions]
    seq_len = min([USUAL_SEQ_LEN, *limits])
    return max(seq_len, inserted_tokens(model, seq_len))


def usual_batch(devices: int) -> int:
    """Samples a step that one tries first on so many devices."""
    return min(max(LEAST_BATCH, DEVICE_BATCH * devices), max(USUAL_BATCH, devices))


def require_sizes(inputs: Inputs, model: ModelSpec, devices: int) -> None:
    """Refuse a question without a batch or a sequence length, naming both where both are missing.

    Raises:
        MissingInputError: with values that ``model`` and so many ``devices`` take.
    """
    usual = {}
    if inputs.global_batch is None and inputs.global_batch_tokens is None:
        usual["--global-batch"] = usual_batch(devices)
    is_fixed = len(model.towers) == 1 and model.towers[0].seq_len is not None
    if inputs.seq_len is None and not is_fixed:
        usual["--seq-len"] = usual_seq_len(model)
    if usual:
        raise MissingInputError(usual)


def size_or_default(
    name: str, value: int | None, default: int, usual: int, notes: list[Assumption]
) -> int:
    """The typed size, or its default for a bare question.

    ``usual`` is suggested in errors; ``notes`` takes the assumption of a default.

    Raises:
        InputError: one out of range.
    """
    if value is None:
        path = "workload." + name.lstrip("-").replace("-", "_")
        why = "not given; the usual of the embedded default"
        notes.append(Assumption(path=path, value=default, why=why))
        return default
    most = MAX_SEQ_LEN if name == "--seq-len" else MAX_SAMPLES
    if not 1 <= value <= most:
        allowed = f"a whole number from 1 to {most}, such as {usual}"
        raise InputError(name, value, allowed, usual if value < 1 else most)
    return value


def batch_of(inputs: Inputs, seq_len: int, notes: list[Assumption]) -> int:
    """The global batch in samples, typed as such or in tokens.

    Raises:
        InputError: both, or tokens that make no whole batch.
    """
    tokens = inputs.global_batch_tokens
    if tokens is None:
        args = ("--global-batch", inputs.global_batch, DEFAULT_BATCH, USUAL_BATCH)
        return size_or_default(*args, notes)
    if inputs.global_batch is not None:
        both = "--global-batch and --global-batch-tokens"
        raise InputError("--global-batch-tokens", both, "one of the two")
    if tokens < seq_len or tokens % seq_len:
        near = max(1, round(tokens / seq_len)) * seq_len
        allowed = f"a multiple of the sequence length {seq_len}"
        raise InputError("--global-batch-tokens", tokens, allowed, near)
    return tokens // seq_len


def length_error(model: ModelSpec, workload: Workload, reason: str) -> InputError:
    """Error of an illegal sequence length, with the nearest legal one."""
    fixed = model.towers[0].seq_len
    if fixed is not None and len(model.towers) == 1:
        return InputError("--seq-len", workload.seq_len, f"{fixed} ({reason})", fixed)
    least = inserted_tokens(model, workload.seq_len)
    if least > workload.seq_len:
        return InputError("--seq-len", workload.seq_len, f"at least {least} ({reason})", least)
    limits = [x.positions for x in model.kinds() if isinstance(x, EmbeddingLayer) and x.positions]
    most = min(limits)
    return InputError("--seq-len", workload.seq_len, f"at most {most} ({reason})", most)


def lengths_of(given: LengthsLike | None, seq_len: int) -> DocumentLengths | None:
    """The histogram of documents in sequences of ``seq_len`` tokens; None for one document each.

    Args:
        given: the path of prepared data or of its ``data.json``, or a histogram.
        seq_len: tokens of a sequence, which divide the data's windows.

    Raises:
        InputError: no prepared data, or sequences that do not divide their windows.
    """
    if given is None or isinstance(given, DocumentLengths):
        return given
    if isinstance(given, Mapping):
        return from_document(DocumentLengths, dict(given), "--lengths")
    from ...datasets.preparation.document_lengths import document_lengths

    return document_lengths(Path(str(given)).expanduser(), seq_len)
