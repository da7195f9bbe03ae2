"""Encoders: BERT for masked words, ViT for image classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import InputError, NotBuiltError
from ..model.model_spec import (
    Activation,
    Attention,
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    NormKind,
    PatchLayer,
    Tower,
)
from .activations import activation
from .config_keys import ConfigKeys
from .family import Family, runs_of

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
NO_DROPOUT = dict.fromkeys(DROPOUT, 0.0)
DEFAULT_CLASSES = 2


def encoder_block(
    config: ConfigKeys, hidden: int, mlp_activation: Activation, eps: float, qkv_bias: bool = True
) -> BlockLayer:
    """Bidirectional attention, then an MLP; biases, and a layer norm before each."""
    heads = config.size("num_attention_heads")
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=config.head_dim(hidden, heads),
        rotary=False,
        qkv_bias=qkv_bias,
        out_bias=True,
        mask="full",
    )
    return BlockLayer(
        hidden=hidden,
        attention=attention,
        mlp=Mlp(
            ffn=config.count_or("intermediate_size", 3072), activation=mlp_activation, bias=True
        ),
        norm="layernorm",
        norm_eps=eps,
    )


def bert(config: ConfigKeys, name: str) -> ModelSpec:
    """BERT (arXiv:1810.04805) with its head for masked words."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    layers = config.layer_count()
    if config.document.get("is_decoder"):
        raise config.refuse("is_decoder", "use an encoder")
    _note_head(config, "BertForMaskedLM", "masked words")
    if config.document.get("position_embedding_type", "absolute") != "absolute":
        raise config.refuse("position_embedding_type", "use absolute")
    eps = config.number_or("layer_norm_eps", 1e-12)
    mlp_activation = activation(config, "hidden_act", "gelu", gated=False)
    block = replace(encoder_block(config, hidden, mlp_activation, eps), norm_placement="post")
    embedding = EmbeddingLayer(
        vocab=vocab,
        hidden=hidden,
        positions=config.count_or("max_position_embeddings", 512),
        token_types=config.count_or("type_vocab_size", 2),
        norm="layernorm",
    )
    head = HeadLayer(hidden=hidden, vocab=vocab, norm=None, norm_eps=eps, bias=True, transform=True)
    runs = (LayerRun(layer=embedding), *runs_of([block] * layers), LayerRun(layer=head))
    if not config.flag_or("tie_word_embeddings", True):  # the class then has an unused bias
        raise config.refuse("tie_word_embeddings", "use true")
    return ModelSpec(name=name, towers=(Tower(name="encoder", layers=runs),), tie_embeddings=True)


def _note_head(config: ConfigKeys, expected: str, task: str) -> None:
    architectures = config.document.get("architectures")
    if not isinstance(architectures, list) or architectures != [expected]:
        config.assume("architectures", expected, f"trained with the head for {task}")


def vit(config: ConfigKeys, name: str) -> ModelSpec:
    """ViT (arXiv:2010.11929) with a linear classifier on the class token."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    _note_head(config, "ViTForImageClassification", "classes of images")
    bias = config.flag_or("qkv_bias", True)
    eps = config.number_or("layer_norm_eps", 1e-12)
    mlp_activation = activation(config, "hidden_act", "gelu", gated=False)
    block = encoder_block(config, hidden, mlp_activation, eps, bias)
    patches = patch_layer(config, hidden, image=224, patch=16, bias=True)
    classifier = ClassifierLayer(hidden=hidden, classes=_classes(config), norm_eps=eps)
    runs = (LayerRun(layer=patches), *runs_of([block] * layers), LayerRun(layer=classifier))
    tower = Tower(name="encoder", layers=runs, seq_len=patches.tokens)
    return ModelSpec(name=name, towers=(tower,))


def patch_layer(
    config: ConfigKeys,
    hidden: int,
    *,
    image: int,
    patch: int,
    bias: bool,
    norm: NormKind | None = None,
) -> PatchLayer:
    """Patches of a square image; ``image`` and ``patch`` are the class's defaults.

    Raises:
        InputError: patches that do not divide the image.
        NotBuiltError: images or patches that are not square.
    """
    sides = []
    for key, default in (("image_size", image), ("patch_size", patch)):
        side = config.document.get(key)
        if isinstance(side, list) and (not side or any(x != side[0] for x in side)):
            raise NotBuiltError(f"{config.where}: {key} {side}", "use a square")
        if isinstance(side, list):
            sides.append(ConfigKeys({key: side[0]}, config.where, "").count(key))
        else:
            sides.append(config.count_or(key, default))
    if sides[0] % sides[1]:
        raise InputError(f"{config.where}: patch_size", sides[1], f"a divisor of {sides[0]}")
    return PatchLayer(
        hidden=hidden,
        image=sides[0],
        patch=sides[1],
        channels=config.count_or("num_channels", 3),
        bias=bias,
        norm=norm,
    )


def _classes(config: ConfigKeys) -> int:
    labels = config.document.get("id2label")
    if isinstance(labels, Mapping) and labels:
        return len(labels)
    return config.count_or("num_labels", DEFAULT_CLASSES)


FAMILIES = (
    Family(model_type="bert", config_class="BertConfig", build=bert, dropout=DROPOUT),
    Family(model_type="vit", config_class="ViTConfig", build=vit, dropout=NO_DROPOUT),
)
