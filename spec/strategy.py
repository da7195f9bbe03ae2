"""LayerStrategy: the degrees, sharding and recomputation of one layer.

Sharding is a lattice of degrees over the ranks that hold the same slice of the weights (those
of data and context parallelism, with Ulysses all), innermost first: a state of degree d is
split over d consecutive ones of them and replicated over the rest. The usual level names are
points of it: with n such ranks, zero1 is (1, 1, n), zero2 (1, n, n), zero3 (n, n, n) for
parameters/gradients/optimizer, hsdp:d is (d, d, d), and (1, 1, d) is one of n/d instances of a
distributed optimizer. hpz:d is zero3 with a second copy of the parameters over d ranks, and
``P/G/O+hpz:d`` any degrees with one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, Field, ValidationInfo

from .choices import RECOMPUTE_WORDS, Recompute, SequenceParallel
from .codec import from_document
from .errors import InputError, nearest_divisor, nearest_name
from .limits import MAX_DEGREE
from .numbers import whole_number

Degree = Annotated[int, Field(ge=1, le=MAX_DEGREE)]
LEVEL_NAMES = ("zero0", "zero1", "zero2", "zero3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Sharding degrees of the states over ranks with the same weights.

    ``secondary_parameters`` is the degree of a second parameter copy from which the backward pass
    gathers (hpZ: Wang et al., ZeRO++, arXiv:2306.10209, section 3.2); 1: there is none.
    """

    parameters: Degree = 1
    secondary_parameters: Degree = 1
    gradients: Degree = 1
    optimizer: Degree = 1

    @property
    def gathers_each_use(self) -> bool:
        """True like zero3.

        Parameters are gathered for each use and freed after it.
        """
        return self.parameters > 1

    @property
    def reduces_each_micro_batch(self) -> bool:
        """True like zero2.

        Gradients are reduced once each micro-batch, not once each step.
        """
        return self.gradients > 1

    def level_name(self, state_ranks: int) -> str:
        """The usual name of these degrees among ``state_ranks`` ranks, else ``P/G/O``."""
        p, g, o = self.parameters, self.gradients, self.optimizer
        n, second = state_ranks, self.secondary_parameters
        if second == 1:
            if (p, g, o) == (1, 1, 1):
                return "zero0"
            levels = {(1, 1, n): "zero1", (1, n, n): "zero2", (n, n, n): "zero3"}
            if (p, g, o) in levels:
                return levels[(p, g, o)]
            if p == g == o:
                return f"hsdp:{p}"
            return f"{p}/{g}/{o}"
        return f"hpz:{second}" if p == g == o == n else f"{p}/{g}/{o}+hpz:{second}"

    @classmethod
    def from_text(cls, text: str, state_ranks: int, field_name: str = "--shard") -> Sharding:
        """Parse ``zero0``..``zero3``, ``hsdp:DEGREE``, ``hpz:DEGREE`` or ``P/G/O[+hpz:DEGREE]``.

        Args:
            text: what was typed.
            state_ranks: ranks that hold the same layer slice.
            field_name: named in the error.

        Raises:
            InputError: an unknown level, or a degree that does not divide ``state_ranks``.
        """
        n = state_ranks
        levels = {"zero0": (1, 1, 1), "zero1": (1, 1, n), "zero2": (1, n, n), "zero3": (n, n, n)}
        if text in levels:
            return cls._of(levels[text])
        if text.startswith("hsdp:"):
            degree = _degree(text[len("hsdp:") :], text, field_name)
            return cls._checked((degree, degree, degree), n, text, field_name)
        if text.startswith("hpz:"):
            degree = _degree(text[len("hpz:") :], text, field_name)
            return cls._of((n, n, n))._with_second(degree, text, field_name)
        if "/" in text:
            first, beside, second = text.partition("+hpz:")
            parts = [_degree(part, text, field_name) for part in first.split("/")]
            if len(parts) == 3:
                shard = cls._checked((parts[0], parts[1], parts[2]), n, text, field_name)
                if not beside:
                    return shard
                return shard._with_second(_degree(second, text, field_name), text, field_name)
        allowed = "zero0, zero1, zero2, zero3, hsdp:DEGREE, hpz:DEGREE or P/G/O[+hpz:DEGREE]"
        nearest = f"hsdp:{n}" if text.startswith("hsdp") else ""
        raise InputError(field_name, text, allowed, nearest or nearest_name(text, LEVEL_NAMES))

    def _with_second(self, degree: int, text: str, field_name: str) -> Sharding:
        """The same with a second copy of the parameters over ``degree`` ranks."""
        ranks = self.parameters
        if degree == 1 or degree >= ranks or ranks % degree:
            allowed = f"a degree above 1 that divides the parameters' {ranks} ranks and is below"
            raise InputError(field_name, text, allowed, text.rpartition("hpz")[0][:-1] or "zero3")
        return replace(self, secondary_parameters=degree)

    @classmethod
    def _checked(
        cls, degrees: tuple[int, int, int], state_ranks: int, text: str, field_name: str
    ) -> Sharding:
        for degree in degrees:
            if state_ranks % degree:
                allowed = f"degrees that divide the {state_ranks} data-parallel ranks"
                raise InputError(field_name, text, allowed, nearest_divisor(degree, state_ranks))
        return cls._of(degrees)

    @classmethod
    def _of(cls, degrees: tuple[int, int, int]) -> Sharding:
        return cls(parameters=degrees[0], gradients=degrees[1], optimizer=degrees[2])


def _degree(part: str, text: str, field_name: str) -> int:
    degree = whole_number(part)
    if degree is None or degree < 1:
        raise InputError(field_name, text, "positive whole degrees, such as hsdp:8 or 1/1/8")
    return degree


class NamedValue(Protocol):
    """A technique's name and type of values, for validating strategies."""

    @property
    def name(self) -> str:
        """The name in a plan."""

    @property
    def value(self) -> type[Any]:
        """The type of its values."""


def typed_values(values: Mapping[str, Any], techniques: Iterable[NamedValue]) -> dict[str, Any]:
    """Values of techniques from a document, each in its own type.

    Values of unknown techniques stay as they are: ``Plan.check`` names them.

    Raises:
        InputError: a value that its technique does not have.
    """
    types = {technique.name: technique.value for technique in techniques}
    return {
        name: from_document(types[name], value, f"techniques.{name}")
        if name in types and not isinstance(value, types[name])
        else value
        for name, value in values.items()
    }


def _typed_values(values: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    return typed_values(values, (info.context or {}).get("techniques", ()))


Techniques = Annotated[dict[str, Any], AfterValidator(_typed_values)]
"""Values by technique name; one that is off is absent."""


def _recompute(text: str) -> str:
    """Check a word of recomputation.

    Raises:
        ValueError: an unknown one.
    """
    if text not in RECOMPUTE_WORDS and not BY_NAMES.fullmatch(text):
        words = ", ".join(repr(word) for word in RECOMPUTE_WORDS)
        raise ValueError(f"Input should be {words} or 'ops:save=NAMES'")
    return text


BY_NAMES = re.compile(r"ops:save=[a-z_]+(,[a-z_]+)*")
RecomputeText = Annotated[Recompute, AfterValidator(_recompute)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStrategy:
    """The decisions for one layer.

    ``sequence_parallel`` megatron keeps activations between the tensor-parallel parts split
    along the sequence; with ulysses the ``tp`` ranks split the sequence and, inside attention,
    the heads, and hold all weights. ``cp`` ranks split the sequence in a ring, beside either.
    ``ep`` and ``etp`` are expert and expert-tensor parallel degrees over all ranks of the stage.
    ``recompute`` selective recomputes core attention, full the whole block; selective-ops and
    ``ops:save=NAMES`` the block but for results that are kept (spec.recomputation).
    """

    tp: Degree = 1
    sequence_parallel: SequenceParallel = "none"
    cp: Degree = 1
    ep: Degree = 1
    etp: Degree = 1
    shard: Sharding = Sharding()
    recompute: RecomputeText = "none"
    techniques: Techniques = field(default_factory=dict)

    def __hash__(self) -> int:
        degrees = (self.tp, self.cp, self.ep, self.etp)
        rest = (self.sequence_parallel, self.shard, self.recompute)
        if not self.techniques:
            return hash((degrees, rest))
        return hash((degrees, rest, frozenset(self.techniques.items())))

    @property
    def megatron_sp(self) -> bool:
        """True if activations between tensor-parallel parts are split along the sequence."""
        return self.sequence_parallel == "megatron" and self.tp > 1

    @property
    def ulysses(self) -> bool:
        """True if the tp ranks split sequence and heads, not weights."""
        return self.sequence_parallel == "ulysses" and self.tp > 1

    @property
    def weight_split(self) -> int:
        """Ranks that split a weight: tp, or 1 with ulysses."""
        return 1 if self.ulysses else self.tp

    @property
    def sequence_split(self) -> int:
        """Ranks that split the sequence between a block's parts."""
        return self.cp * (self.tp if self.megatron_sp or self.ulysses else 1)

    @property
    def width(self) -> int:
        """Ranks that work on one sample together."""
        return self.tp * self.cp

    @property
    def input_split(self) -> int:
        """Ranks with different input tokens of a layer, after any gather."""
        return self.cp * (self.tp if self.ulysses else 1)

    @property
    def layout(self) -> tuple[int, int, bool]:
        """Layout of activations between layers: tp, cp, tokens split over tp."""
        return (self.tp, self.cp, self.megatron_sp or self.ulysses)

    def data_parallel(self, stage_ranks: int) -> int:
        """Data-parallel degree on a stage of ``stage_ranks``."""
        return stage_ranks // self.width

    def state_ranks(self, stage_ranks: int) -> int:
        """Ranks with the same weights, over which states shard."""
        return stage_ranks // self.weight_split

    def expert_data_parallel(self, stage_ranks: int) -> int:
        """Ranks that hold the same slice of the same experts."""
        return stage_ranks // (self.ep * self.etp)

    def expert_degree(self, degree: int, stage_ranks: int) -> int:
        """Sharding degree of experts whose layer shards a state ``degree`` ways.

        Experts shard over those of a state's consecutive ranks that hold the same ones, so no
        farther apart than the dense parts: with all ranks of a stage, all that hold the same; with
        those of a node, the same in the node, perhaps one alone, which leaves experts whole. So it
        is in Megatron-LM, whose optimizer instances are as many for experts
        (``num_distributed_optimizer_instances``). What dense parts do not shard, experts do not.
        """
        held = self.ep * self.etp
        consecutive = degree * self.weight_split
        if degree == 1 or consecutive % held:
            return 1
        return consecutive // held
