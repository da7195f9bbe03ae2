from typing import Any
def trace_step(engine: Any, where: Any) -> dict[str, Any]:
    raise NotImplementedError
