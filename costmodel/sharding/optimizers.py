"""Optimizer state bytes, and the work of an update.

========== ====================================== =============================================
optimizer  states of a parameter                  source
========== ====================================== =============================================
adamw      two moments                            Loshchilov and Hutter, arXiv:1711.05101
adam       two moments                            Kingma and Ba, arXiv:1412.6980
sgd        one momentum                           Sutskever et al., 2013
lion       one moment                             Chen et al., arXiv:2302.06675, algorithm 2
adamw8bit  two bytes, and a 4-byte scale of each  Dettmers et al., arXiv:2110.02861, section 2:
           block of 2,048 of each moment; token   blocks, and 32 bits for embeddings (2.3)
           tables and tensors below 4,096
           elements keep 4-byte moments
adafactor  sums of rows and of columns of a       Shazeer and Stern, arXiv:1804.04235, sections
           matrix, one value for other elements   3 and 4, without first moment
muon       one momentum for matrices of blocks,   Jordan, 2024; Liu et al., arXiv:2502.16982,
           two moments for everything else        section 2
========== ====================================== =============================================

Lion's kernel is one pass, as DeepSpeed's and bitsandbytes' are. The executor's takes foreach
passes: 13 accesses of an element in place of 5, on an update that is a small part of a step.

Muon replaces the momentum of an (n, m) matrix, n <= m, by five Newton-Schulz steps of it:
``X X'``, ``A A`` and ``B X``, 4 n²m + 2 n³ FLOPs each, in 16 bits. A matrix with sharded momentum
is gathered first (arXiv:2502.16982, section 2.3, algorithm 1); the gathering ranks share the
matrices evenly (assumed). Where shards are slices of every matrix the results are sent back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...spec.choices import Optimizer
from ...spec.parallel.rank_groups import RankGroup
from ...spec.report.work_items import Collective, Kernel, streamed
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.workload import DtypeRecord
from ..symbolic.tape import WorkItem

BLOCK = 2048
SCALE_BYTES = 4
LEAST_8BIT_ELEMENTS = 4096
"""bitsandbytes, optim: min_8bit_size; smaller tensors keep their states in fp32."""
NEWTON_SCHULZ_STEPS = 5
KERNELS: dict[str, str] = {
    "adamw": "fused_adamw",
    "adam": "fused_adam",
    "sgd": "fused_sgd",
    "lion": "fused_lion",
    "adamw8bit": "blockwise_adamw",
    "adafactor": "adafactor",
    "muon": "fused_adamw",
}
MASTER_ACCESSES: dict[str, int] = {"adafactor": 6}
"""Reads and writes of parameter-sized tensors in the master's format, without moments: three
(parameter in and out, gradient); Adafactor also makes its update in memory to clip it by its
norm, having read the gradient for the sums.
"""
MOMENTS: dict[str, int] = {"adamw": 2, "adam": 2, "sgd": 1, "lion": 1, "muon": 2, "adamw8bit": 2}


class LocalParameter(NamedTuple):
    """A trained parameter on its rank.

    ``shape``: local, experts first; ``whole``: of one matrix before any split. ``shard``: elements
    whose states the rank keeps. ``hidden``: a block's matrix, which Muon orthogonalizes. ``table``:
    an embedding table.
    """

    shape: tuple[int, ...]
    whole: tuple[int, ...]
    shard: int
    hidden: bool
    table: bool


class MuonMatrices(NamedTuple):
    """Matrices of one shape in a rank's share of Muon's update.

    ``number`` of them are spread over ``ranks``.
    """

    rows: int
    columns: int
    number: int
    ranks: int


def state_bytes(optimizer: Optimizer, dtype: DtypeRecord, tensors: Iterable[LocalParameter]) -> int:
    """Bytes of optimizer states of ``tensors`` on a rank, without master weights."""
    size = DTYPE_BYTES[dtype.moments]
    return sum(_tensor_states(optimizer, size, tensor) for tensor in tensors)


def _tensor_states(optimizer: Optimizer, size: int, tensor: LocalParameter) -> int:
    if optimizer == "muon":
        return (1 if tensor.hidden else 2) * tensor.shard * size
    if optimizer == "adafactor":
        return _factored_elements(tensor) * size
    if optimizer == "adamw8bit":
        if tensor.table or tensor.shard < LEAST_8BIT_ELEMENTS:
            return 2 * tensor.shard * DTYPE_BYTES["fp32"]
        return 2 * (tensor.shard + -(-tensor.shard // BLOCK) * SCALE_BYTES)
    return MOMENTS[optimizer] * tensor.shard * size


def _factored_elements(tensor: LocalParameter) -> int:
    """Elements of a shard's row and column sums; all of a vector.

    Each expert has its own; its shards are cut along rows.
    """
    if len(tensor.shape) == 1:
        return tensor.shard
    *experts, _, columns = tensor.shape
    return -(-tensor.shard // columns) + math.prod(experts) * columns


def muon_matrices(tensors: Iterable[LocalParameter], ranks: int) -> tuple[MuonMatrices, ...]:
    """Matrices orthogonalized by Muon, shared by ``ranks``."""
    counts: Counter[tuple[int, int]] = Counter()
    for tensor in tensors:
        if tensor.hidden:
            short, long = sorted(tensor.whole)
            counts[short, long] += tensor.shape[0] if len(tensor.shape) == 3 else 1
    return tuple(MuonMatrices(*shape, count, ranks) for shape, count in sorted(counts.items()))


class UpdateShare(NamedTuple):
    """A unit's share of its rank's update: elements by kind of update.

    ``matrices`` (with weight decay) and ``vectors`` (without) go through the optimizer's own
    kernel, ``momentum`` elements through Muon's, ``orthogonal`` matrices through Newton-Schulz;
    ``gathers`` join their momentum. A technique scales and updates ``host_elements``, whose
    gradients the norm counts, and updates ``replaced`` ones, which are clipped too.
    """

    matrices: int = 0
    vectors: int = 0
    momentum: int = 0
    orthogonal: tuple[MuonMatrices, ...] = ()
    gathers: tuple[WorkItem, ...] = ()
    host_elements: int = 0
    replaced: int = 0

    @property
    def elements(self) -> int:
        """All elements, however they are updated."""
        return self.matrices + self.vectors + self.momentum + self.host_elements + self.replaced


def update_share(
    optimizer: Optimizer,
    tensors: tuple[LocalParameter, ...],
    elements: tuple[int, int],
    groups: tuple[RankGroup, RankGroup],
    sends_back: bool,
) -> UpdateShare:
    """The share of a parameter group.

    Args:
        optimizer: its name.
        tensors: its trained parameters.
        elements: matrix and vector elements of its shards.
        groups: ranks that shard its states, and those that split its tensors.
        sends_back: True if a rank's shard is a slice of every matrix.
    """
    matrices, vectors = elements
    hidden = sum(tensor.shard for tensor in tensors if tensor.hidden)
    if optimizer != "muon" or not hidden:
        return UpdateShare(matrices, vectors)
    shards, split = groups
    gathers: list[WorkItem] = []
    if shards.size > 1:
        gather = Collective("all_gather", *shards, hidden * shards.size * 2, "bf16")
        gathers += [gather, gather] if sends_back else [gather]
    if split.size > 1:
        gathers.append(Collective("all_gather", *split, hidden * split.size * 2, "bf16"))
    orthogonal = muon_matrices(tensors, shards.size * split.size)
    return UpdateShare(matrices - hidden, vectors, hidden, orthogonal, tuple(gathers))


def merged_share(shares: Iterable[UpdateShare]) -> UpdateShare:
    """Merge the shares of all units of a rank."""
    all_shares = list(shares)
    counts: Counter[tuple[int, int, int]] = Counter()
    for share in all_shares:
        for rows, columns, count, ranks in share.orthogonal:
            counts[rows, columns, ranks] += count
    return UpdateShare(
        matrices=sum(share.matrices for share in all_shares),
        vectors=sum(share.vectors for share in all_shares),
        momentum=sum(share.momentum for share in all_shares),
        orthogonal=tuple(MuonMatrices(r, c, n, k) for (r, c, k), n in sorted(counts.items())),
        gathers=tuple(item for share in all_shares for item in share.gathers),
        host_elements=sum(share.host_elements for share in all_shares),
        replaced=sum(share.replaced for share in all_shares),
    )


def update_work(
    share: UpdateShare, tied_copy: int, optimizer: Optimizer, dtype: DtypeRecord, clips: bool
) -> tuple[WorkItem, ...]:
    """Norm of the gradients, clipping, and the optimizer over a rank's elements.

    An elementwise optimizer reads parameter, gradient and states and writes all but the gradient,
    in a call each for matrices and vectors. ``share`` is of all units; ``tied_copy``: elements
    whose gradient another stage counts in the norm.
    """
    name, master = dtype.master, DTYPE_BYTES[dtype.master]
    elements = share.elements
    if not elements:
        return ()
    counted, clipped = elements - tied_copy, elements - share.host_elements
    work: list[WorkItem] = [streamed("foreach_norm", counted, counted * master, name)]
    for _ in range(int(clips) + int(dtype.param == "fp16") if clipped else 0):  # the loss scaling
        work.append(streamed("foreach_mul", clipped, 2 * clipped * master, name))
    work += elementwise_update(share, optimizer, dtype)
    return (*work, *_orthogonal_work(share, dtype))


def elementwise_update(
    share: UpdateShare, optimizer: Optimizer, dtype: DtypeRecord
) -> Iterator[Kernel]:
    """The optimizer's own kernel over matrices, and over vectors."""
    for elements in (share.matrices, share.vectors):
        traffic = elements * _element_traffic(optimizer, dtype)
        if elements:
            yield streamed(KERNELS[optimizer], elements, traffic, dtype.master)


def _element_traffic(optimizer: Optimizer, dtype: DtypeRecord) -> int:
    master = MASTER_ACCESSES.get(optimizer, 3) * DTYPE_BYTES[dtype.master]
    if optimizer == "adafactor":
        return master
    size = 1 if optimizer == "adamw8bit" else DTYPE_BYTES[dtype.moments]
    return master + 2 * MOMENTS[optimizer] * size


def _orthogonal_work(share: UpdateShare, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Muon: momentum, its gathers, Newton-Schulz of a rank's matrices, the step."""
    if not share.momentum:
        return ()
    name, master = dtype.master, DTYPE_BYTES[dtype.master]
    moments, n = DTYPE_BYTES[dtype.moments], share.momentum
    work: list[WorkItem] = [streamed("muon_momentum", n, n * (master + 2 * moments + 2), name)]
    work += share.gathers
    for rows, columns, count, ranks in share.orthogonal:
        local_count = -(-count // ranks)
        for _ in range(NEWTON_SCHULZ_STEPS):
            for m, k, n_columns in (
                (rows, columns, rows),
                (rows, rows, rows),
                (rows, rows, columns),
            ):
                work.append(_product(local_count, m, k, n_columns))
    work.append(streamed("muon_step", n, n * (2 * master + 2), name))
    return tuple(work)


def _product(count: int, m: int, k: int, n: int) -> Kernel:
    traffic_bytes = count * (m * k + k * n + m * n) * 2
    return Kernel("batched_matmul", (count, m, k, n), "bf16", 2 * count * m * k * n, traffic_bytes)
