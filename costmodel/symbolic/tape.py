"""The tape: symbolic execution of a layer, the means of lowering.

A :class:`SymbolicTensor` stands for a tensor: shape, element size, storage, no data. Operations on
a tape note kernels, collectives and bytes, and register their backward, as in autograd. A storage
releases its bytes with its last reference, like torch's, so lifetimes follow from code that mirrors
the executor's, and peak memory is read off the tape.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.parallel.rank_groups import RankGroup
from ...spec.report.work_items import Collective, ExposedTerm, Kernel
from ...spec.workload.number_formats import rate_name, tensor_bytes
from .saved_results import ResultNames, SavedResults
from .symbolic_tensor import Backward, Node, Storage
from .symbolic_tensor import SymbolicTensor as SymbolicTensor
from .work_overlap import WorkOverlap, usual_overlap

WorkItem = Kernel | Collective


class TapeEntry(NamedTuple):
    """One work item; ``recomputed``: repeated for the backward.

    ``term``: breakdown term of a collective; ``overlap``: what it runs beside, None if serial.
    ``technique``: the technique that adds the item, and its term.
    """

    work: WorkItem
    recomputed: bool
    term: ExposedTerm = "exposed_tp"
    overlap: WorkOverlap | None = None
    technique: str = ""

    @property
    def breakdown_term(self) -> str:
        """The breakdown's term of the item."""
        if self.technique:
            return self.technique
        if isinstance(self.work, Kernel):
            return "recompute" if self.recomputed else self.work.term
        return self.term


CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]


class Tape:
    """Collect symbolic work and track live and peak bytes.

    ``accumulating``: parameter gradients are added to an earlier micro-batch's. ``main_gradients``:
    all are added to resident buffers, those of matrix products by the product itself. ``splits``:
    weight gradients' work waits for :meth:`run_weight_work`, holding its inputs. ``frozen``: the
    layer's own weights are not trained. ``stack``: of the layer, with the overlaps of its
    collectives; None: all are serial. ``additions``: number of kernels that add gradients to
    others. ``result_bytes``: of every named result.
    """

    def __init__(
        self,
        accumulating: bool = False,
        main_gradients: bool = False,
        splits: bool = False,
        frozen: bool = False,
        stack: StackSpec | None = None,
    ) -> None:
        self.entries: list[TapeEntry] = []
        self.live_bytes = 0
        self.peak_bytes = 0
        self.accumulating = accumulating
        self.main_gradients = main_gradients
        self.splits = splits
        self.frozen = frozen
        self.stack = stack
        self.parameter_gradients: list[SymbolicTensor] = []
        self.additions = 0
        self._nodes: list[Node] = []
        self._pending: list[Node] = []
        self._weight_work: deque[Callable[[], None]] = deque()
        self.result_bytes: dict[str, int] = {}
        self._keeps = True
        self._recomputing = False
        self._beside: WorkOverlap | None = None
        self._saving: SavedResults | None = None
        self._restoring: SavedResults | None = None

    def note_bytes(self, change_bytes: int) -> None:
        """Add live bytes (remove, if negative)."""
        self.live_bytes += change_bytes
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes

    def new(self, shape: tuple[int, ...], dtype: str) -> SymbolicTensor:
        """A fresh tensor."""
        size_bytes = tensor_bytes(math.prod(shape), dtype)
        return SymbolicTensor(shape, dtype, Storage(self, size_bytes))

    def like(self, value: SymbolicTensor, dtype: str | None = None) -> SymbolicTensor:
        """A fresh tensor of the same shape."""
        return self.new(value.shape, dtype or value.dtype)

    def constant(self, shape: tuple[int, ...], dtype: str) -> SymbolicTensor:
        """A resident tensor, such as a parameter: it costs traffic, not memory."""
        return SymbolicTensor(shape, dtype, Storage(self, 0))

    def kernel(
        self, op: str, reads: tuple[SymbolicTensor, ...], out: SymbolicTensor
    ) -> SymbolicTensor:
        """An elementwise or reducing operation, known by its largest operand; returns ``out``.

        An in-place operation also reads ``out``.
        """
        elements, traffic_bytes = out.elements, out.size_bytes
        for value in reads:
            traffic_bytes += value.size_bytes
            elements = max(elements, value.elements)
        self._note(Kernel(op, (elements,), out.dtype, 0, traffic_bytes))
        return out

    def shaped_kernel(
        self, op: str, shape: tuple[int, ...], dtype: str, flops: int, traffic_bytes: int
    ) -> None:
        """An operation known by several sizes."""
        self._note(Kernel(op, shape, dtype, flops, traffic_bytes))

    def product(
        self,
        m: int,
        k: int,
        n: int,
        dtype: str,
        accumulate: bool = False,
        bias: bool = False,
        operands: str | None = None,
    ) -> None:
        """A matrix product (m, k) · (k, n), optionally accumulated or biased.

        ``operands``: format of its operands if not ``dtype``.
        """
        operand_format = operands or dtype
        written = (2 if accumulate else 1) * m * n + (n if bias else 0)
        traffic = tensor_bytes(m * k + k * n, operand_format) + tensor_bytes(written, dtype)
        self._note(Kernel("matmul", (m, k, n), rate_name(operand_format), 2 * m * k * n, traffic))

    def collective(
        self,
        kind: CollectiveKind,
        group: RankGroup,
        *values: SymbolicTensor,
        term: ExposedTerm = "exposed_tp",
        free_kernels: int = 0,
        copies: int = 1,
        over: tuple[tuple[int, float], ...] = (),
        overlap: WorkOverlap | None = None,
    ) -> None:
        """A collective; ``values`` together are its largest buffer on a rank.

        ``free_kernels``: following kernels that need not wait for it; ``copies``: consecutive rows
        of one token, and ``over``: uneven rows, see :class:`Collective`; ``overlap``: where it is
        not the stack's usual one.
        """
        size_bytes = sum(value.size_bytes for value in values)
        dtype = values[0].dtype
        work = Collective(kind, group.size, group.stride, size_bytes, dtype, copies, over)
        overlap = overlap or self._beside
        if overlap is None and self.stack is not None:
            overlap = usual_overlap(self.stack, term, free_kernels)
        self.entries.append(TapeEntry(work, self._recomputing, term, overlap))

    def _note(self, work: WorkItem) -> None:
        self.entries.append(TapeEntry(work, self._recomputing, overlap=self._beside))

    def record(
        self,
        outs: tuple[SymbolicTensor, ...],
        inputs: tuple[SymbolicTensor, ...],
        backward: Backward,
    ) -> None:
        """Make ``outs`` the outputs of an operation on ``inputs``.

        ``backward`` takes a gradient for each of ``outs``, returns one for each of ``inputs``, and
        holds whatever the operation saves.
        """
        if not self._keeps:
            return
        node = Node(tuple(value.producer for value in inputs), len(outs), backward)
        self._nodes.append(node)
        for index, out in enumerate(outs):
            out.producer = (node, index)

    def parameter_gradient(
        self, gradient: SymbolicTensor, shared: bool = False, trained: bool | None = None
    ) -> None:
        """Keep a parameter's gradient, or add it to an existing one.

        ``shared`` always adds. A ``frozen`` layer's is dropped unless its parameter is ``trained``.
        """
        if self.frozen and not trained:
            return
        if self.accumulating or shared or self.main_gradients:
            self.kernel("add", (gradient, gradient), gradient)
            self.additions += 1
        else:
            self.parameter_gradients.append(gradient)

    def weight_work(self, work: Callable[[], None]) -> None:
        """Run the work of weight gradients, now or (``splits``) later.

        Nothing else in the backward depends on it. The closure ``work`` has no collectives and
        refers to input and output gradient alone, so that all else is freed.
        """
        if self.splits:
            self._weight_work.append(work)
        else:
            work()

    def run_weight_work(self) -> None:
        """Run deferred :meth:`weight_work` in order, each releasing its inputs."""
        while self._weight_work:
            self._weight_work.popleft()()

    @contextmanager
    def not_recording(self) -> Iterator[None]:
        """Run operations without saving anything for a backward pass."""
        before, self._keeps = self._keeps, False
        try:
            yield
        finally:
            self._keeps = before

    @contextmanager
    def beside(self, overlap: WorkOverlap | None) -> Iterator[None]:
        """Mark the kernels and collectives inside with what they run beside."""
        before, self._beside = self._beside, overlap
        try:
            yield
        finally:
            self._beside = before

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Mark the work done inside as recomputation."""
        before, self._recomputing = self._recomputing, True
        try:
            yield
        finally:
            self._recomputing = before

    @contextmanager
    def saving_results(self, results: SavedResults) -> Iterator[None]:
        """Keep named results of the operations inside."""
        before, self._saving = self._saving, results
        try:
            yield
        finally:
            self._saving = before

    @contextmanager
    def restoring_results(self, results: SavedResults) -> Iterator[None]:
        """Take named results instead of running the operations inside again."""
        before, self._restoring = self._restoring, results
        try:
            yield
        finally:
            self._restoring = before

    def keep_result(self, names: ResultNames, *results: SymbolicTensor) -> None:
        """Offer an operation's results under their names."""
        size_bytes = sum(result.size_bytes for result in results)
        for name in names:
            self.result_bytes[name] = size_bytes // len(names)
        if self._saving is not None:
            self._saving.keep(names, results)

    def kept_result(self, names: ResultNames) -> tuple[SymbolicTensor, ...] | None:
        """Results kept under their names, if they are not to be computed again."""
        return None if self._restoring is None else self._restoring.take(names)

    def keeps(self, name: str) -> bool:
        """True if the pass being run keeps, or kept, a result of this name."""
        results = self._saving or self._restoring
        return results is not None and name in results.names

    @property
    def node_count(self) -> int:
        """Nodes recorded and not yet run backward."""
        return len(self._nodes)

    def take_nodes(self, start: int = 0) -> list[Node]:
        """Remove and return the nodes recorded since there were ``start`` of them."""
        nodes, self._nodes = self._nodes[start:], self._nodes[:start]
        return nodes

    def run_backward(self, nodes: list[Node]) -> None:
        """Pass gradients through ``nodes`` in reverse order, freeing each afterwards.

        The last outputs' gradients are set beforehand; those of nodes outside ``nodes`` stay there.
        """
        self._pending = nodes
        while nodes:
            _run_node(self, nodes.pop())

    def run_next(self, nodes: list[Node]) -> None:
        """Run ``nodes`` backward after the current node, the last first.

        The current node's gradient is then no longer held for it.
        """
        self._pending += nodes

    def add_gradient(self, producer: tuple[Node, int], gradient: SymbolicTensor) -> None:
        """Add a gradient to a tensor's existing one, out of place."""
        node, index = producer
        if node.gradients[index] is not None:
            gradient = self.kernel("add", (gradient, gradient), self.like(gradient))
        node.gradients[index] = gradient


def _run_node(tape: Tape, node: Node) -> None:
    backward, gradients = node.backward, node.gradients
    node.backward = None
    node.gradients = []
    if backward is None or all(gradient is None for gradient in gradients):
        return
    results = backward(*gradients)
    del gradients, backward
    for producer, result in zip(node.inputs, results, strict=True):
        if producer is not None and result is not None:
            tape.add_gradient(producer, result)
