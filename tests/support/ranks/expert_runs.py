"""Small decoders with experts or latent attention, and plans that ranks of the tests run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from generators.plan_cases import Case, Sizes

from shardwright.spec.model.experts import experts_of
from shardwright.spec.model.feed_forward import Mlp, Moe
from shardwright.spec.model.mixers import Attention, LatentAttention
from shardwright.spec.model.model_spec import (
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    ModelSpec,
    Tower,
)
from shardwright.spec.strategy import LayerStrategy, Sharding

LATENT = LatentAttention(heads=4, query_rank=24, kv_rank=16, nope_dim=12, rope_dim=8, value_dim=10)
FOUR = Moe(experts=4, topk=2, ffn=24)


@dataclass(frozen=True, kw_only=True)
class ExpertSizes(Sizes):
    """A decoder whose first ``dense`` blocks have an MLP and the others ``moe``."""

    blocks: int = 3
    moe: Moe | None = FOUR
    dense: int = 0
    latent: LatentAttention | None = None

    def model(self) -> ModelSpec:
        attention = self.latent or Attention(
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.hidden // self.heads,
            qk_norm=self.qk_norm,
        )
        parts = [Mlp(ffn=self.ffn) if i < self.dense or self.moe is None else self.moe
                 for i in range(self.blocks)]  # fmt: skip
        blocks = (BlockLayer(hidden=self.hidden, attention=attention, mlp=part) for part in parts)
        runs = (
            LayerRun(layer=EmbeddingLayer(vocab=self.vocab, hidden=self.hidden)),
            *(LayerRun(layer=block) for block in blocks),
            LayerRun(layer=HeadLayer(hidden=self.hidden, vocab=self.vocab)),
        )
        return ModelSpec(name="small", towers=(Tower(name="text", layers=runs),))


MIXTRAL = ExpertSizes()
QWEN3 = ExpertSizes(qk_norm=True, moe=Moe(experts=8, topk=3, ffn=16))
QWEN2 = ExpertSizes(moe=Moe(experts=4, topk=2, ffn=16, shared_ffn=24, shared_gate=True))
DEEPSEEK = ExpertSizes(
    moe=Moe(experts=8, topk=2, ffn=16, shared_ffn=16, score="sigmoid"), dense=1, latent=LATENT
)
GROUPED_V3 = ExpertSizes(
    moe=Moe(experts=8, topk=3, ffn=16, score="sigmoid", groups=4, groups_per_token=2)
)
GROUPED_V2 = ExpertSizes(moe=Moe(experts=8, topk=2, ffn=16, groups=4, groups_per_token=2))
LATENT_DENSE = ExpertSizes(moe=None, latent=LATENT)
DIRECT_LATENT = ExpertSizes(moe=None, latent=replace(LATENT, query_rank=None, bias=True))


def spread(case: Case, strategy: LayerStrategy, shard: str = "zero0") -> Case:
    """The case with one strategy for all layers, as far as each has experts and a block.

    Args:
        case: of a model of :class:`ExpertSizes`.
        strategy: of the layers with experts.
        shard: a level's name, among the ranks that hold the same part of a layer.
    """
    width, found = case.ranks // case.stages, []
    for layer in case.sizes.model().layers():
        fields: dict[str, Any] = {} if experts_of(layer) else {"ep": 1, "etp": 1}
        if not isinstance(layer, BlockLayer):
            fields["recompute"] = "none"
        own = replace(strategy, **fields)
        degrees = Sharding.from_text(shard, own.state_ranks(width))
        found.append(replace(own, shard=degrees))
    return replace(case, strategies=found)
