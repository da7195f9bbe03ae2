"""Shardwright: plan, price, explain and run hybrid-parallel training.

The public face is lazy: importing this package loads nothing heavy, and each name is
fetched from its subpackage on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.python import (
        CheckpointHandle,
        Client,
        PlanHandle,
        checkpoint,
        clusters,
        compare,
        data,
        diagnose,
        errors,
        execute,
        explain,
        import_plan,
        models,
        parallelize,
        plan,
        simulate,
        size,
        validate,
        what_if,
    )

__version__ = "0.1.0"
__all__ = [
    "CheckpointHandle",
    "Client",
    "PlanHandle",
    "__version__",
    "checkpoint",
    "clusters",
    "compare",
    "data",
    "diagnose",
    "errors",
    "execute",
    "explain",
    "import_plan",
    "models",
    "parallelize",
    "plan",
    "simulate",
    "size",
    "validate",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from .api import python

        return getattr(python, name)
    raise AttributeError(f"module 'shardwright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
