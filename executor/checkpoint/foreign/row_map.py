"""SourcePiece: where rows of a parameter lie in a tensor of another framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ....spec.model.layer_parameters import ParameterSpec
from ....spec.model.layers import Layer
from ...huggingface.tensor_piece import TensorPiece
from ...stage.weight_source import Ranges


@dataclass(frozen=True, slots=True)
class RowRun:
    """``count`` rows of ours from ``first`` on, at ``at``, ``at + step``, … of theirs."""

    first: int
    at: int
    count: int
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePiece:
    """A tensor of a source, and the rows of it that are one of our parameters.

    ``shape``: in the source. ``index``: leading indices, as of layers or experts that are stacked.
    ``runs``: in our order; empty where rows are ours as they lie. ``expert``: the parameter's
    first index, where a source has a tensor or an index per expert. ``padded``: it may have
    further rows.
    """

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    index: tuple[int, ...] = ()
    runs: tuple[RowRun, ...] = ()
    expert: int | None = None
    padded: bool = False

    @classmethod
    def of(cls, piece: TensorPiece, rows: int) -> SourcePiece:
        """A piece of transformers' maps, of a parameter with ``rows`` rows."""
        return cls(
            name=piece.name,
            shape=piece.shape,
            transposed=piece.transposed,
            runs=(RowRun(0, piece.first, rows),) if piece.first else (),
            expert=piece.expert,
        )

    def read(self, ranges: Ranges, read: Callable[[Ranges], Tensor]) -> Tensor:
        """A part of the parameter, in our order of rows, by reads of the tensor's ranges."""
        (start, stop), rest = ranges[0], ranges[1:]
        parts: list[Tensor] = []
        for rows in _joined(self._runs_of(start, stop)):
            low = min(run.at for run in rows)
            high = max(run.at + (run.count - 1) * run.step + 1 for run in rows)
            block = self._read_block((low, high), rest, read)
            if len(rows) == 1 and rows[0].step == 1:
                parts.append(block)
                continue
            at = [run.at - low + i * run.step for run in rows for i in range(run.count)]
            parts.append(block[torch.tensor(at)])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def put(self, value: Tensor, tensor: Tensor) -> None:
        """Write the whole parameter (an expert of it) into the whole ``tensor``."""
        target = tensor[self.index] if self.index else tensor
        target = target.t() if self.transposed else target
        for run in self._runs_of(0, value.shape[0]):
            end = run.at + (run.count - 1) * run.step + 1
            target[run.at : end : run.step] = value[run.first : run.first + run.count]

    def _runs_of(self, start: int, stop: int) -> Iterator[RowRun]:
        if not self.runs:
            yield RowRun(start, start, stop - start)
        for run in self.runs:
            low, high = max(start, run.first), min(stop, run.first + run.count)
            if low < high:
                yield RowRun(low, run.at + (low - run.first) * run.step, high - low, run.step)

    def _read_block(
        self, rows: tuple[int, int], rest: Ranges, read: Callable[[Ranges], Tensor]
    ) -> Tensor:
        ours = (*rest, rows) if self.transposed else (rows, *rest)
        block = read((*((i, i + 1) for i in self.index), *ours))
        block = block.view(block.shape[len(self.index) :]) if self.index else block
        return block.t() if self.transposed else block


def _joined(runs: Iterator[RowRun]) -> list[list[RowRun]]:
    """Neighbors whose rows lie among each other, which one read takes."""
    groups: list[list[RowRun]] = []
    end = -1
    for run in runs:
        low = run.at
        if groups and run.step > 1 and groups[-1][0].at <= low < end:
            groups[-1].append(run)
        else:
            groups.append([run])
            end = 0
        end = max(end, run.at + (run.count - 1) * run.step + 1)
    return groups


SourcePieces = Callable[[int, Layer, ParameterSpec], tuple[SourcePiece, ...]]
"""``pieces(index, layer, spec)``: the tensors that hold a parameter of the model's layer."""
