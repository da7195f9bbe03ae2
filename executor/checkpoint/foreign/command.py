"""``python -m shardwright.executor.checkpoint.foreign.command``: inspect or convert a checkpoint.

A request as JSON on standard input, the answer on standard output: a document, or an error's parts.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ....spec.codec import from_document
from ....spec.errors import InputError, ShardwrightError
from ....spec.model.model_spec import ModelSpec
from ..storage.paths import checkpoint_path
from .convert import Conversion
from .inspect import checkpoint_document
from .look import is_ours, look
from .ours import read_ours
from .source import ForeignSource

POSITIONS = ("position_embeddings.weight", "wpe.weight", "positions.weight")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The document of a request: ``path`` alone, or with ``to``, ``out`` and a ``model``.

    Raises:
        ShardwrightError: the first thing that cannot be done.
    """
    path = checkpoint_path(request["path"])
    if request.get("to") is None:
        return checkpoint_document(path)
    document, source = request.get("model"), None
    if is_ours(path):
        source, manifest = read_ours(path)
        document = document or manifest.run.model_document
    if document is None:
        allowed = "the model of the weights: a name, a file or a config.json"
        raise InputError("--model", "nothing", allowed, "--model llama-3.1-8b")
    model = from_document(ModelSpec, document, "--model")
    rows = _position_rows(source or look(path, "SRC"))
    return Conversion(path, model, rows, checkpoint_path(request["out"])).to(request["to"])


def _position_rows(source: ForeignSource) -> int:
    """Rows of a table of positions, which a model may leave open; 1 without one."""
    found = (t.shape[0] for name, t in source.tensors.items() if name.endswith(POSITIONS))
    return next(found, 1)


def main() -> None:
    """Answer one request."""
    try:
        result: dict[str, Any] = {"document": answer(json.load(sys.stdin))}
    except InputError as error:
        parts = [error.field, str(error.given), error.allowed, error.nearest]
        result = {"input_error": parts}
    except ShardwrightError as error:
        result = {"error": str(error)}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
