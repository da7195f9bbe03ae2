"""Pipeline layouts in Megatron-LM's text: E, t, m and L, stages between bars.

``E|(t|)*3,m|L`` has an embedding, blocks, multi-token layers and the loss; ``*N`` repeats what is
before it (Megatron-LM megatron/core/transformer/pipeline_parallel_layer_layout.py).
"""

from __future__ import annotations

import re

from ....spec.model.layers import EmbeddingLayer, HeadLayer, MultiTokenLayer
from ....spec.model.model_spec import Layer
from ..file_keys import FileKeys

KEY = "pipeline_model_parallel_layout"
MOST_TEXT = 20_000
REPEATED = re.compile(r"(\(([EtmL|,]*)\)|([EtmL]))\*(\d{1,4})")


def layout_chunks(keys: FileKeys) -> tuple[int, ...]:
    """Layers of each chunk of a layout.

    Raises:
        InputError: another text.
    """
    text = keys.text(KEY).replace(" ", "")
    while found := REPEATED.search(text):
        piece = found.group(2) if found.group(2) is not None else found.group(3)
        text = text[: found.start()] + piece * int(found.group(4)) + text[found.end() :]
        if len(text) > MOST_TEXT:
            raise keys.error(KEY, f"at most {MOST_TEXT} letters, written out")
    stages = [stage.replace(",", "") for stage in text.split("|")]
    if any(set(stage) - set("EtmL") for stage in stages):
        raise keys.error(KEY, "E, t, m and L with bars between the stages, as in Et*3|t*4|L")
    return tuple(map(len, stages))


def layout_text(layers: list[Layer], sizes: tuple[int, ...]) -> str:
    """The layout of chunks of so many layers."""
    stages, start = [], 0
    for size in sizes:
        stages.append("".join(_letter(layer) for layer in layers[start : start + size]))
        start += size
    return "|".join(re.sub(r"tt+", lambda run: f"t*{len(run.group())}", s) for s in stages)


def _letter(layer: Layer) -> str:
    if isinstance(layer, EmbeddingLayer):
        return "E"
    if isinstance(layer, HeadLayer):
        return "L"
    return "m" if isinstance(layer, MultiTokenLayer) else "t"
