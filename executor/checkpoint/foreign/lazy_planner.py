"""Save planners of torch's distributed checkpoint that hold little: tensors made when written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItem


class LazySavePlanner(DefaultSavePlanner):
    """Tensors of float32 by name, each made when it is written.

    ``shapes``: the state dictionary to save, of tensors without numbers.
    """

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.shapes: dict[str, Tensor] = {}
        self._made: dict[str, Callable[[], Tensor]] = {}

    def add(self, name: str, shape: tuple[int, ...], make: Callable[[], Tensor]) -> None:
        """Add a tensor that ``make`` gives."""
        self.shapes[name] = torch.empty(shape, device="meta")
        self._made[name] = make

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """The numbers of an item."""
        return self._made[write_item.index.fqn]().contiguous()


class BoxSavePlanner(DefaultSavePlanner):
    """Boxes of tensors by name and offsets."""

    def __init__(self, boxes: Mapping[tuple[str, tuple[int, ...]], Tensor]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._boxes = boxes

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """The numbers of an item."""
        return self._boxes[write_item.index.fqn, tuple(write_item.index.offset or ())]
