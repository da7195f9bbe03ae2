"""TechniqueValue: the values of a technique, the first of its four roles.

A module of ``techniques`` ends in one. A field left out has the usual meaning: legal wherever the
technique's layer kinds are, on any stack, exact, without rank groups of its own. Command line,
service and Python read names, words and help texts here, so nothing slow is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .number_family import NumberFamily
from .program_rules import ProgramRules
from .program_rules import State as State

if TYPE_CHECKING:
    from .cluster.stack_spec import StackSpec
    from .model.layers import Layer
    from .parallel.rank_groups import RankGroup
    from .strategy import LayerStrategy
    from .workload.workload import DtypeRecord

Scope = Literal["layer", "program"]
OFF = "none"
"""The word of a flag or pin for a technique that is absent from the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKinds:
    """Layer kinds of a technique's plans, prices and runs, as ``Layer.kind``."""

    plannable: tuple[str, ...]
    simulable: tuple[str, ...]
    executable: tuple[str, ...]

    @classmethod
    def all_of(cls, *kinds: str) -> LayerKinds:
        """The same kinds in every respect."""
        return cls(plannable=kinds, simulable=kinds, executable=kinds)


NO_KINDS = LayerKinds.all_of()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lossy:
    """What a lossy value changes: ``of`` differs by at most ``bound``.

    ``unit``: a fraction of a step's result, or steps by which it is out of date.
    """

    bound: float
    of: str
    unit: Literal["fraction", "steps"] = "fraction"

    def __str__(self) -> str:
        if self.unit == "fraction":
            return f"{self.of} within {self.bound:g}"
        return f"{self.of} out of date by up to {self.bound:g} step{'' if self.bound == 1 else 's'}"


def _any_parts(layer: Layer) -> str | None:
    return None


def _legal_anywhere(
    layer: Layer, strategy: LayerStrategy, stage_ranks: int, dtype: DtypeRecord
) -> str | None:
    return None


def _any_tokens(strategy: LayerStrategy, seq_len: int) -> str | None:
    return None


def _on_any_stack(strategy: LayerStrategy, stack: StackSpec) -> str | None:
    return None


def _exact(value: Any) -> Lossy | None:
    return None


def _no_groups(strategy: LayerStrategy, stage_ranks: int) -> tuple[RankGroup, ...]:
    return ()


def _relocates_nothing(strategy: LayerStrategy) -> frozenset[State]:
    return frozenset()


def never_joins(strategy: LayerStrategy) -> bool:
    """False: no value makes all gradients of a layer at once."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueValue:
    """Values of a technique, and their rules in a layer's strategy or in a program.

    Attributes:
        name: in a plan, and in Python, pins and the service; a flag has it with dashes.
        value: a frozen, hashable dataclass, read from JSON; every default is the usual choice.
        kinds: the layer kinds that it is for; none of a program's technique.
        part_violation: what a layer of these kinds lacks for it, in one line; None: nothing.
        program: rules in a whole program, for a technique of that scope; the rules below are then
            not asked, but for ``lossy``.
        words: of a flag or pin beside ``none``, as errors list them.
        word_of: the word of a value.
        from_word: the value of a word; None: it is not one.
        families: further values, each a word with a number.
        help: of the flag, in one sentence.
        metavar: of the flag, for its word.
        systems: published systems with this mechanism, as the table of systems names them.
        legality_violation: why a value may not stand in a layer's strategy, in one line; else None.
        token_violation: why not with a sample of so many tokens, in one line; else None.
        stack_violation: why a stack cannot say it, in one line; else None.
        lossy: how far a value changes results; None: it is exact.
        groups: rank groups of its own inside a stage; a run makes them up front, and the buffers
            of their communicators are counted.
        relocates: states of a layer that another tier keeps in place of the device.
        joins_backward: True if a run makes all gradients of a layer at once, so that no schedule
            can split its backward.
        slow_start: True if the first step may take minutes, which the other ranks wait for.
        one_document: True if a run reads a sample as one document, whatever its lengths.
    """

    name: str
    value: type[Any]
    words: tuple[str, ...]
    word_of: Callable[[Any], str]
    from_word: Callable[[str], Any]
    help: str
    kinds: LayerKinds = NO_KINDS
    part_violation: Callable[[Layer], str | None] = _any_parts
    program: ProgramRules | None = None
    metavar: str = "V"
    families: tuple[NumberFamily, ...] = ()
    systems: tuple[str, ...] = ()
    legality_violation: Callable[[Layer, LayerStrategy, int, DtypeRecord], str | None] = (
        _legal_anywhere
    )
    token_violation: Callable[[LayerStrategy, int], str | None] = _any_tokens
    stack_violation: Callable[[LayerStrategy, StackSpec], str | None] = _on_any_stack
    lossy: Callable[[Any], Lossy | None] = _exact
    groups: Callable[[LayerStrategy, int], tuple[RankGroup, ...]] = _no_groups
    relocates: Callable[[LayerStrategy], frozenset[State]] = _relocates_nothing
    joins_backward: Callable[[LayerStrategy], bool] = never_joins
    slow_start: bool = False
    one_document: bool = False

    @property
    def flag(self) -> str:
        """The flag of the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def scope(self) -> Scope:
        """Where its values stand: in layers' strategies, or in a program."""
        return "layer" if self.program is None else "program"

    @property
    def forms(self) -> tuple[str, ...]:
        """Words and families, as errors and completion list them."""
        return (*self.words, *(family.form for family in self.families))

    @property
    def samples(self) -> tuple[Any, ...]:
        """The values of its words, and of the ends of its families."""
        ends = (end for family in self.families for end in family.ends)
        return (*(self.from_word(word) for word in self.words), *ends)

    def of(self, strategy: LayerStrategy) -> Any:
        """The value in a layer's strategy; None: it is off."""
        value = strategy.techniques.get(self.name)
        return value if isinstance(value, self.value) else None

    def in_program(self, values: Mapping[str, Any]) -> Any:
        """The value among a program's; None: it is off."""
        value = values.get(self.name)
        return value if isinstance(value, self.value) else None

    def text_in_program(self, values: Mapping[str, Any]) -> str:
        """The word of a flag or pin for a program's values."""
        value = self.in_program(values)
        return OFF if value is None else self.word_of(value)

    def text_of(self, strategy: LayerStrategy) -> str:
        """The word of a flag or pin for a layer's strategy."""
        value = self.of(strategy)
        return OFF if value is None else self.word_of(value)


Values = tuple[TechniqueValue, ...]


def of_layers(techniques: Values) -> Values:
    """Techniques of layers."""
    return tuple(technique for technique in techniques if technique.program is None)


def of_programs(techniques: Values) -> tuple[tuple[TechniqueValue, ProgramRules], ...]:
    """Techniques of whole programs, with their rules there."""
    return tuple((t, t.program) for t in techniques if t.program is not None)


def layer_kind_violation(
    technique: TechniqueValue, layer: Layer, kinds: tuple[str, ...]
) -> str | None:
    """Refusal of a layer's kind or parts; None if it is one of ``kinds``, with all it takes."""
    if layer.kind in kinds:
        return technique.part_violation(layer)
    if technique.program is not None:
        return f"{technique.name} belongs to a whole program, not to layers"
    wanted = " and ".join(f"{kind}s" for kind in kinds)
    return f"{technique.name} applies to {wanted or 'no layers yet'}, not to the {layer.kind}"
