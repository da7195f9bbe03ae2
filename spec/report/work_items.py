"""Kernels and collectives, named as in lowerings, recorded runs and profiles.

A kernel is one device operation with the sizes that determine its cost. A collective is one
communication of a rank group. The cost model derives them from a plan, the executor's recorder
from a run; they are compared item by item.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..limits import MAX_LOSS_CHUNKS

Term = Literal["matmul", "attention", "elementwise", "optimizer"]
ExposedTerm = Literal["exposed_tp", "exposed_cp", "exposed_ep"]
"""Breakdown term of the exposed part of a collective inside a layer."""


class Kernel(NamedTuple):
    """One device operation.

    ``shape``: matrix products (m, k, n) or (batch, m, k, n); grouped ones (groups, m, k, n), of
    which the rows of all groups together are m, and k for gradients of weights (wgrad); flash
    attention under a causal mask (batch, heads, kv_heads, seq, head_dim), unmasked ("full")
    (batch, heads, kv_heads, queries, keys, width of a key, width of a value), under any other
    causal mask ("band") the same and the most keys that a query sees; chunked scans (batch, heads,
    groups or key heads, seq, width of a head or key, of its state or value, chunk); all experts
    of a layer in one kernel (tokens, hidden, ffn, experts a token, experts, tensor and expert
    parallel ranks); everything else (elements of the largest operand,).
    ``traffic_bytes`` counts each operand as read or written once.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    flops: int
    traffic_bytes: int

    @property
    def term(self) -> Term:
        """The kernel's breakdown term."""
        if self.op in MATMULS or self.op in FUSED:
            return "matmul"
        if self.op in ATTENTIONS or self.op in SCANS:
            return "attention"
        return "optimizer" if self.op in OPTIMIZERS else "elementwise"


def streamed(op: str, elements: int, traffic_bytes: int, dtype: str) -> Kernel:
    """A one-pass kernel over ``elements`` that counts no FLOPs."""
    return Kernel(op, (elements,), dtype, 0, traffic_bytes)


class Collective(NamedTuple):
    """One communication; ``payload_bytes`` is the largest buffer on a rank.

    All-gather: the gathered output; reduce-scatter: the input; all-reduce: the buffer;
    all-to-all: the send buffer, the rank's own part included; send and recv: the message;
    send_recv: the message that each rank of a ring sends to the next while it receives another
    from the one before. ``ranks`` ranks, ``stride`` apart, of a stage take part; a message
    between stages joins 2 ranks, and ``stride`` is the distance between them. ``copies``
    consecutive
    rows of an all-to-all's buffer are one token, which is sent once to a rank or node that receives
    several of them. ``over``: rows of the fullest of so many equal parts of its ranks, over their
    mean, where ranks receive unlike numbers of an all-to-all's rows; the buffer is the fullest's.
    """

    kind: Literal[
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "send_recv",
        "send",
        "recv",
    ]
    ranks: int
    stride: int
    payload_bytes: int
    dtype: str
    copies: int = 1
    over: tuple[tuple[int, float], ...] = ()


GROUPED_PRODUCT, WEIGHT_GRADIENT = "grouped_matmul", "grouped_matmul_wgrad"
GROUPED = frozenset({GROUPED_PRODUCT, WEIGHT_GRADIENT})
MATMULS = frozenset({"matmul", "batched_matmul"}) | GROUPED
FLASH, FLASH_FULL, FLASH_BAND = "flash_attention", "flash_attention_full", "flash_attention_band"
FLASH_FORWARDS = (FLASH, FLASH_FULL, FLASH_BAND)
FLASH_BACKWARDS = tuple(f"{op}_backward" for op in FLASH_FORWARDS)
ATTENTIONS = frozenset({*FLASH_FORWARDS, *FLASH_BACKWARDS})
FUSED_GATED = "fused_experts"
FUSED = frozenset({FUSED_GATED, "fused_experts_ungated"})
"""Experts as serving engines run them; no layer of ours is lowered to one."""
SCANS = frozenset(
    {
        "state_space_scan",
        "state_space_scan_backward",
        "delta_rule_scan",
        "delta_rule_scan_backward",
        "lightning_scan",
        "lightning_scan_backward",
    }
)
"""Chunked scans over the sequence in kernels of their own, in place of attention."""
OPTIMIZERS = frozenset(
    {
        "fused_adamw",
        "foreach_norm",
        "foreach_mul",
        "foreach_add",
        "fused_adam",
        "fused_sgd",
        "fused_lion",
        "foreach_lerp",
        "foreach_sign",
        "blockwise_adamw",
        "adafactor",
        "muon_momentum",
        "muon_step",
    }
)

TO_HOST, TO_DEVICE = "copy_to_host", "copy_to_device"
"""Copies between the memory of a device and that of its host."""
FROM_DRIVE, TO_DRIVE = "read_drive", "write_drive"
"""Transfers between the memory of a host and its drives."""
HOST_PREFIX = "host_"
"""Prefix of operations of the host's processor, in its own memory."""


def on_host(op: str) -> bool:
    """True for work on the host, its link or its drives."""
    return op in (TO_HOST, TO_DEVICE, FROM_DRIVE, TO_DRIVE) or op.startswith(HOST_PREFIX)


def without_host(op: str) -> str:
    """The operation's name on a core, whose memory is the host's."""
    return "copy" if op in (TO_HOST, TO_DEVICE) else op.removeprefix(HOST_PREFIX)


TOUCHES_ROWS = frozenset({"embedding", "gather", "scatter_add"})
"""Indexed operations, whose size is the rows touched, not the indexed table."""

ATEN_NAMES: dict[str, str] = {
    "mm": "matmul",
    "addmm": "matmul",
    "bmm": "batched_matmul",
    "grouped_mm": "grouped_matmul",
    "_grouped_mm": "grouped_matmul",
    "_scaled_dot_product_flash_attention": "flash_attention",
    "_scaled_dot_product_flash_attention_backward": "flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu": "flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "flash_attention_backward",
    "_scaled_dot_product_cudnn_attention": "flash_attention",
    "_scaled_dot_product_cudnn_attention_backward": "flash_attention_backward",
    "flash_step": "flash_attention",
    "flash_step_backward": "flash_attention_backward",
    "flash_full_step": "flash_attention_full",
    "flash_full_step_backward": "flash_attention_full_backward",
    "flash_band_step": "flash_attention_band",
    "flash_band_step_backward": "flash_attention_band_backward",
    "_fused_adamw": "fused_adamw",
    "_foreach_norm": "foreach_norm",
    "_foreach_mul": "foreach_mul",
    "_foreach_add": "foreach_add",
    "_foreach_lerp": "foreach_lerp",
    "_foreach_sign": "foreach_sign",
    "_foreach_copy": "copy",
    "split_with_sizes_copy": "copy",
    "_chunk_cat": "copy",
    "copy": "copy",
    "clone": "copy",
    "index": "copy",
    "_to_copy": "cast",
    "cat": "copy",
    "native_layer_norm": "layer_norm",
    "native_layer_norm_backward": "layer_norm_backward",
    "linalg_vector_norm": "row_norm",
    "embedding_dense_backward": "embedding_backward",
    "index_select": "gather",
    "index_add": "scatter_add",
    "expert_bias": "add",
    "expert_bias_sum": "sum",
    "scatter": "scatter_add",
    "_softmax": "softmax",
    "_softmax_backward_data": "softmax_backward",
}


def flash_name(mask: str, plain: bool) -> str:
    """The flash kernel for a mask.

    ``plain``: causal, square, one width, no window.
    """
    return FLASH if plain else FLASH_FULL if mask == "full" else FLASH_BAND


def computed_fraction(op: str, shape: tuple[int, ...]) -> float:
    """Share of the counted scores left by a flash kernel's mask.

    A plain causal mask: one half. A band in which query i of n sees min(window, keys - n + i) keys:
    their sum over n · window, which is the counted number.
    """
    if op.startswith(FLASH_FULL):
        return 1.0
    if not op.startswith(FLASH_BAND):
        return 0.5
    queries, keys, window = shape[3], shape[4], shape[7]
    earlier = keys - queries
    partial_queries = max(0, min(queries, window - earlier))
    partial_scores = partial_queries * earlier + partial_queries * (partial_queries + 1) // 2
    return (partial_scores + (queries - partial_queries) * window) / (queries * window)


def kernel_name(aten_name: str) -> str:
    """The cost model's name of an aten operation.

    In-place forms count as the plain form.
    """
    plain = aten_name.rstrip("_")
    return ATEN_NAMES.get(plain, plain.lstrip("_"))


LARGEST_LOGITS = 2**28
"""Logits alive at once where the loss runs over chunks: 0.5 GiB in bf16."""
CHUNK_MULTIPLE = 256
"""Rows of a chunk of tokens, but for the last one, are a multiple: whole tiles of a product."""


LARGEST_SPLIT_LOGITS = 2**30
"""Logits of a rank's part of a split vocabulary that a loss keeps whole: 4 GiB in float32."""


def chunks_split_loss(tokens: int, vocab: int) -> bool:
    """True if a loss over a split vocabulary, of ``vocab`` local rows, runs over chunks."""
    return tokens * vocab > LARGEST_SPLIT_LOGITS


def loss_chunks(tokens: int, vocab: int) -> tuple[int, ...]:
    """Rows of each chunk of tokens of a fused projection and cross-entropy.

    They grow beyond the bytes meant for their logits where there would be too many.
    """
    multiples = LARGEST_LOGITS // (vocab * CHUNK_MULTIPLE)
    chunk = max(1, multiples, -(-tokens // (MAX_LOSS_CHUNKS * CHUNK_MULTIPLE))) * CHUNK_MULTIPLE
    full_chunks, remainder = divmod(tokens, chunk)
    return (chunk,) * full_chunks + ((remainder,) if remainder else ())


IGNORED_KERNELS: dict[str, str] = {
    "empty": "allocation only, moves no data",
    "empty_like": "allocation only, moves no data",
    "new_empty": "allocation only, moves no data",
    "empty_strided": "allocation only, moves no data",
    "new_empty_strided": "allocation only, moves no data",
    "unsafe_view": "a view under another name",
    "stack": "joins the input tokens or a handful of norms: bytes, not megabytes",
    "randint": "makes random input tokens in tests",
    "scalar_tensor": "one number",
    "ones_like": "one number: the gradient of the loss",
    "floor_divide": "which token a row of an expert is of: a number a row",
    "searchsorted": "where each expert's rows end: a number an expert",
}
"""Recorded operations that a lowering leaves out, each with its reason."""

IGNORED_BELOW_BYTES = 2048
"""Operations that move fewer bytes (loss and norm scalars) are left out of the comparison."""
