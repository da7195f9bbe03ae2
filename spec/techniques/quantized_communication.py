"""quantized_communication: weights and gradients of blocks in 4 or 8 bits on the wire.

Lossy. Planned where it is allowed or pinned, simulated and run, for dense blocks whose states
shard. The card is in ``costmodel.techniques.quantized_communication``.

``diff4`` sends differences to the weights that every rank computes with, so it takes parameters
that stay whole from step to step, as zero1 and zero2 have them. ZeRO++ is int8 weights and 4-bit
gradients beside a second copy of the parameters (hpZ), which may itself be int8. Where degrees
nest, what is sent once a step between the ranks of one piece travels in fewer bits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from ..limits import MAX_DEVICES_PER_NODE
from ..technique import LayerKinds, Lossy, TechniqueValue

if TYPE_CHECKING:
    from ..model.layers import Layer
    from ..parallel.rank_groups import RankGroup
    from ..strategy import LayerStrategy, Sharding
    from ..workload.workload import DtypeRecord

NAME = "quantized_communication"
LEVELS = {4: 7, 8: 127}
"""Largest level of each width, as in SDP4Bit and ``kernels.quantization``."""
HADAMARD_GROUP = 32
MAX_BLOCK = 32768
"""Elements that one program of the kernels holds."""
WeightFormat = Literal["unchanged", "int8", "int4", "diff4"]
GradientFormat = Literal["unchanged", "two_hops"]
CopyFormat = Literal["unchanged", "int8"]
BitWidth = Literal[4, 8]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedCommunication:
    """What a block's weights and gradients travel in.

    ``weights``: int8 or int4 in blocks, or 4-bit differences to the weights in use, of
    ``weight_block`` elements a scale. ``gradients``: exchanged in two hops, inside groups of
    ``node_ranks`` consecutive ranks in ``inner_bits``, then between those in ``outer_bits``,
    rounded stochastically; ``hadamard``: transformed in groups of 32 first. ``second_copy``: what
    a second copy of the parameters is kept and gathered in.
    """

    weights: WeightFormat = "diff4"
    gradients: GradientFormat = "two_hops"
    node_ranks: int = 8
    inner_bits: BitWidth = 8
    outer_bits: BitWidth = 4
    hadamard: bool = True
    weight_block: int = 2048
    inner_block: int = 512
    outer_block: int = 128
    second_copy: CopyFormat = "unchanged"
    second_block: int = 2048

    @property
    def weight_bits(self) -> int:
        """Bits of a weight, or of its difference, on the wire."""
        return 4 if self.weights in ("int4", "diff4") else 8


SDP4BIT = QuantizedCommunication()
INT8 = QuantizedCommunication(weights="int8", gradients="unchanged")
ZERO_PLUS_PLUS = QuantizedCommunication(weights="int8", inner_bits=4, hadamard=False)
HPZ8 = QuantizedCommunication(weights="unchanged", gradients="unchanged", second_copy="int8")
NAMED = {"int8": INT8, "sdp4bit": SDP4BIT, "zero++": ZERO_PLUS_PLUS, "hpz8": HPZ8}
_WORD = re.compile(
    r"(?P<word>.+?)(?P<copy>/hpz8(x(?P<block>[0-9]{1,5}))?)?(@(?P<node>[1-9][0-9]{0,4}))?"
)
_SPELLED = re.compile(
    r"(?P<weights>unchanged|(?P<format>int8|int4|diff4)x(?P<block>[0-9]{1,5}))/"
    r"(?P<gradients>unchanged|(?P<inner>[0-9]+)x(?P<inner_block>[0-9]{1,5})\+"
    r"(?P<outer>[0-9]+)x(?P<outer_block>[0-9]{1,5})(?P<hadamard>h?))"
)


def value_of(strategy: LayerStrategy) -> QuantizedCommunication | None:
    """The value of a layer; None: it sends plain numbers."""
    value = strategy.techniques.get(NAME)
    return value if isinstance(value, QuantizedCommunication) else None


def gathered_ranks(strategy: LayerStrategy) -> RankGroup:
    """Ranks between which weights travel in fewer bits: all, or those with parts of a piece."""
    shard = strategy.shard
    return _outermost(strategy, shard.parameters if shard.gathers_each_use else shard.optimizer)


def reduced_ranks(strategy: LayerStrategy) -> RankGroup:
    """The same of gradients: all, or those with parts of one micro-batch's reduction."""
    shard = strategy.shard
    inner = shard.gradients if shard.reduces_each_micro_batch else shard.optimizer
    return _outermost(strategy, inner)


def _outermost(strategy: LayerStrategy, inner: int) -> RankGroup:
    from ..parallel.rank_groups import outer_group, shard_group

    whole = strategy.shard.optimizer
    return shard_group(strategy) if inner == whole else outer_group(strategy, inner, whole)


def hop_groups(
    strategy: LayerStrategy, value: QuantizedCommunication
) -> tuple[RankGroup, RankGroup]:
    """Ranks of the first hop and of the second, whose sizes multiply to those that reduce.

    Of the ranks that shard a block, those of one node are consecutive.
    """
    from ..parallel.rank_groups import RankGroup

    whole = reduced_ranks(strategy)
    inner = _inner_degree(whole, value.node_ranks)
    return (
        RankGroup(inner, whole.stride),
        RankGroup(whole.size // inner, whole.stride * inner),
    )


def _inner_degree(whole: RankGroup, node_ranks: int) -> int:
    if node_ranks % whole.stride:
        return 1
    size, inside = whole.size, node_ranks // whole.stride
    while inside:
        size, inside = inside, size % inside
    return size


def groups(strategy: LayerStrategy, stage_ranks: int) -> tuple[RankGroup, ...]:
    """Groups of the two hops, unless one of them is all ranks that reduce."""
    value = value_of(strategy)
    if value is None or value.gradients == "unchanged":
        return ()
    ranks = reduced_ranks(strategy).size
    return tuple(group for group in hop_groups(strategy, value) if group.size < ranks)


def legality_violation(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    """The rule that a layer's value breaks; None if it is legal.

    Args:
        layer: the layer.
        strategy: its decisions.
        stage_ranks: ranks of the stage that holds it.
        dtype: number formats of the workload.
    """
    from ..model.experts import experts_of

    value = value_of(strategy)
    if value is None:
        return None
    if experts_of(layer) is not None:
        return f"{NAME} of blocks with experts, which move in two groups, is not built yet"
    if dtype.matmul is not None:
        return f"{NAME} beside products in {dtype.matmul} is not built yet"
    if "cpu_offload" in strategy.techniques:
        return f"{NAME} beside cpu_offload is not built yet"
    return _form_violation(value) or _shard_violation(value, strategy.shard)


def _form_violation(value: QuantizedCommunication) -> str | None:
    if value.weights == value.gradients == value.second_copy == "unchanged":
        return f"{NAME} of neither weights nor gradients is nothing: leave the technique out"
    if not 1 <= value.node_ranks <= MAX_DEVICES_PER_NODE:
        return f"{NAME} has nodes of 1 to {MAX_DEVICES_PER_NODE} ranks, not {value.node_ranks}"
    forms = []
    if value.weights != "unchanged":
        forms.append(("weight", value.weight_bits, value.weight_block, 2))
    if value.gradients == "two_hops":
        step = HADAMARD_GROUP if value.hadamard else 2
        forms.append(("inner", value.inner_bits, value.inner_block, step))
        forms.append(("outer", value.outer_bits, value.outer_block, step))
    if value.second_copy != "unchanged":
        forms.append(("second", 8, value.second_block, 2))
    for name, bits, block, step in forms:
        if bits not in LEVELS:
            return f"{NAME} has 4 or 8 {name} bits, not {bits}"
        if block % step or not step <= block <= MAX_BLOCK:
            why = " (with the Hadamard transform)" if step == HADAMARD_GROUP else ""
            return f"{NAME} has {name} blocks of multiples of {step}{why}, not {block}"
    return None


def _shard_violation(value: QuantizedCommunication, shard: Sharding) -> str | None:
    if shard.optimizer == 1:
        return f"{NAME} needs sharded states, as with zero1 to zero3"
    if value.weights == "diff4" and shard.gathers_each_use:
        return f"{NAME} of differences needs parameters that stay whole: zero1 or zero2"
    if shard.secondary_parameters > 1:
        return None
    if value.second_copy != "unchanged":
        return f"{NAME} of the second copy needs one: shard hpz:DEGREE"
    if replace(value, node_ranks=ZERO_PLUS_PLUS.node_ranks) == ZERO_PLUS_PLUS:
        return f"{NAME} zero++ has a second copy of the parameters: shard hpz:DEGREE"
    return None


def word_of(value: QuantizedCommunication) -> str:
    """The word of a value: a name, or its parts spelled out, with a node's ranks if not 8."""
    node = "" if value.node_ranks == SDP4BIT.node_ranks else f"@{value.node_ranks}"
    usual = replace(value, node_ranks=SDP4BIT.node_ranks)
    names = {named: word for word, named in NAMED.items()}
    if usual in names or value.second_copy == "unchanged":
        return names.get(usual, _spelled(value)) + node
    block = "" if value.second_block == HPZ8.second_block else f"x{value.second_block}"
    rest = replace(usual, second_copy="unchanged", second_block=HPZ8.second_block)
    return f"{names.get(rest, _spelled(rest))}/hpz8{block}{node}"


def _spelled(value: QuantizedCommunication) -> str:
    weights, gradients = str(value.weights), str(value.gradients)
    if value.weights != "unchanged":
        weights += f"x{value.weight_block}"
    if value.gradients == "two_hops":
        inner = f"{value.inner_bits}x{value.inner_block}"
        outer = f"{value.outer_bits}x{value.outer_block}"
        gradients = f"{inner}+{outer}{'h' if value.hadamard else ''}"
    return f"{weights}/{gradients}"


def from_word(word: str) -> QuantizedCommunication | None:
    """The value of a word; None: it is none."""
    typed = _WORD.fullmatch(word)
    if typed is None:
        return None
    value = NAMED.get(typed["word"]) or _from_parts(typed["word"])
    if value is None:
        return None
    if typed["copy"] is not None:
        block = int(typed["block"] or HPZ8.second_block)
        value = replace(value, second_copy="int8", second_block=block)
    if typed["node"] is None:
        return value
    node_ranks = int(typed["node"])
    return replace(value, node_ranks=node_ranks) if node_ranks <= MAX_DEVICES_PER_NODE else None


def _from_parts(word: str) -> QuantizedCommunication | None:
    parts = _SPELLED.fullmatch(word)
    if parts is None:
        return None
    value = QuantizedCommunication(weights="unchanged", gradients="unchanged")
    if parts["format"] is not None:
        weights = cast(WeightFormat, parts["format"])
        value = replace(value, weights=weights, weight_block=int(parts["block"]))
    if parts["inner"] is None:
        return value
    return replace(
        value,
        gradients="two_hops",
        inner_bits=cast(BitWidth, int(parts["inner"])),
        inner_block=int(parts["inner_block"]),
        outer_bits=cast(BitWidth, int(parts["outer"])),
        outer_block=int(parts["outer_block"]),
        hadamard=bool(parts["hadamard"]),
    )


def lossy(value: QuantizedCommunication) -> Lossy | None:
    """Bound of the rounding of each number sent, as a fraction of its block's largest.

    To nearest it is half a level, stochastically less than one; with the Hadamard transform, of
    transformed numbers.
    """
    bounds = list[tuple[float, str]]()
    if value.weights != "unchanged":
        bounds.append((0.5 / LEVELS.get(value.weight_bits, 1), value.weights))
    if value.gradients == "two_hops":
        bits = min(value.inner_bits, value.outer_bits)
        bounds.append((1 / LEVELS.get(bits, 1), f"{bits}-bit gradients"))
    if value.second_copy != "unchanged":
        bounds.append((0.5 / LEVELS[8], "int8 second copies"))
    if not bounds:
        return None
    names = {form: f"{form} weights" for form in ("int8", "int4")}
    names["diff4"] = "4-bit differences of weights"
    bound, what = max(bounds)
    return Lossy(bound=bound, of=f"{names.get(what, what)} sent, of their block's largest,")


TECHNIQUE = TechniqueValue(
    name=NAME,
    value=QuantizedCommunication,
    kinds=LayerKinds.all_of("block"),
    words=(*NAMED,),
    word_of=word_of,
    from_word=from_word,
    help="Weights and gradients of blocks in 4 or 8 bits on the wire: none, int8 (weights), "
    "sdp4bit (with zero1 or zero2), zero++ or hpz8 (with hpz; hpz8: the second copy, also as "
    "zero++/hpz8); @N says ranks of a node, 8 if left out.",
    metavar="Q",
    systems=("SDP4Bit",),
    legality_violation=legality_violation,
    lossy=lossy,
    groups=groups,
)
