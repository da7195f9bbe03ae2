"""Types of transformers 5.23.0, and what sets those apart that are not read."""

from __future__ import annotations

REFUSED = {
    "gemma4": ("images and sound by towers, often embeddings of each layer", "gemma4_text"),
    "gemma4_assistant": ("a drafter that reads another model's keys and values", "gemma4_text"),
    "gemma4_unified": (
        "images and sound by projections alone",
        "gemma4_unified_text, its text_config",
    ),
    "cohere_compass_text": ("both parts behind one norm, scaled logits", "gpt_neox"),
    "gemma3n": ("alternating updates and embeddings of each layer", "gemma3_text"),
    "gpt_bigcode": ("multi-query attention beside learned positions", "starcoder2"),
    "bitnet": ("norms inside both parts, before their last projection", "llama"),
    "bert-generation": ("a BERT that is a decoder with cross-attention", "bert"),
    "biogpt": ("a scaled embedding beside learned positions", "opt"),
    "blt": ("bytes in patches of many lengths", "llama"),
    "codegen": ("both parts behind one norm, heads turned in part, a bias on the head", "gpt_neox"),
    "cohere": ("both parts behind one norm, scaled logits", "gpt_neox"),
    "cohere2": ("both parts behind one norm, scaled logits", "gpt_neox"),
    "cpmant": ("segments and prompts with learned biases of positions", "t5"),
    "ctrl": ("sinusoidal positions", "gpt2"),
    "dbrx": ("experts in ffn_config, clipped projections", "mixtral"),
    "diffllama": ("differential attention", "llama"),
    "evolla": ("an encoder of proteins and cross-attention", "llama"),
    "gpt_neo": ("local attention in every second layer, unscaled scores", "gpt2"),
    "gpt_neox_japanese": ("one bias after the last projection of each part", "gpt_neox"),
    "hrm_text": ("the same layers in nested cycles", "llama"),
    "modernbert-decoder": (
        "norms without a first one, a joint gate, local attention",
        "gemma3_text",
    ),
    "olmo": ("norms without weights", "olmo2"),
    "openai-gpt": ("norms after sums in a causal decoder", "gpt2"),
    "phi": ("both parts behind one norm, a bias on the head", "gpt_neox"),
    "pi0": ("an expert for actions beside images and text", "llava"),
    "rwkv": ("time mixing of RWKV", "mamba2"),
    "stablelm": ("layer norms beside gated MLPs, heads turned in part", "glm"),
    "trocr": ("a decoder of text in images, by cross-attention", "t5"),
    "xglm": ("sinusoidal positions, a scaled embedding", "opt"),
    "xlm": ("embeddings of languages, sinusoidal positions", "bert"),
    "xlnet": ("relative positions in two streams", "bert"),
    "xlstm": ("matrix memories of xLSTM", "mamba2"),
    "gptj": ("one norm before both parts and a bias on the head", "gpt_neox"),
    "falcon": ("three arrangements of norms and heads under one name", "gpt_neox"),
    "bloom": ("ALiBi positions", "opt"),
    "mpt": ("ALiBi positions", "opt"),
    "mamba": ("the selective scan of the first Mamba", "mamba2"),
    "jamba": ("the selective scan of the first Mamba", "nemotron_h"),
    "llama4": ("an image tower of rotated patches", "llama4_text, its text_config"),
    "deepseek_v4": ("compressed attention and hyper-connections", "deepseek_v3"),
    "roberta": ("positions that start behind the padding", "bert"),
    "electra": ("a generator beside a discriminator", "bert"),
    "deberta": ("disentangled attention", "bert"),
    "clip": ("a contrastive loss between two towers", "llava"),
    "whisper": ("convolutions over sound", "t5"),
    "bart": ("learned positions in both towers", "t5"),
}
"""``model_type`` → its feature that is not built, and the nearest type that is read."""
TYPES_TEXT = """
    afmoe apertus arcee aria aria_text axk1 axk2 aya_vision bailing_hybrid bamba bart beam bert
    bert-generation big_bird bigbird_pegasus biogpt bitnet blenderbot blenderbot-small blip blip-2
    bloom blt camembert chameleon codegen cohere cohere2 cohere2_moe cohere2_vision cohere_compass
    cohere_compass_text cosmos3_edge cosmos3_omni cpmant ctrl cwm data2vec-text dbrx deepseek_ocr2
    deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 deepseek_vl deepseek_vl_hybrid diffllama
    diffusion_gemma doge dots1 dots3_note dots3_note_text electra emu3 ernie ernie4_5 ernie4_5_moe
    ernie4_5_vl_moe evolla exaone4 exaone4_5 exaone_moe falcon falcon_h1 falcon_mamba fast_vlm
    flex_olmo flint florence2 fuyu gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4
    gemma4_assistant gemma4_text gemma4_unified gemma4_unified_assistant gemma4_unified_text git
    glm glm4 glm46v glm4_moe glm4_moe_lite glm4v glm4v_moe glm5_next glm_moe_dsa glm_ocr glmga
    got_ocr2 gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite
    granite4_vision granite_docling granite_swa granitemoe granitemoe_swa granitemoehybrid
    granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl hy_v3 hy_v4
    hyperclovax hyperclovax_vision_v2 idefics idefics2 idefics3 inkling2 inkling2_text
    inkling_mm_model inkling_text instructblip instructblipvideo internlm3 internvl iquestcoder
    jais2 jamba janus jetmoe kimi_k25 kimi_linear kolibri1 kosmos-2 kosmos-2.5 laguna lfm2
    lfm2_moe lfm2_vl lfm3 lfm3_vl lighton_ocr llama llama4 llama4_text llava llava_next
    llava_next_video llava_onevision longcat_flash mamba mamba2 marian mbart megatron-bert mellum
    mimo_v2_flash minicpm3 minicpm_ocr minicpmv4_6 minicpmv4_7 minimax minimax_m2 minimax_m3_vl
    minimax_m3_vl_text ministral ministral3 mistral mistral3 mistral4 mistral_large4 mixtral
    mllama modernbert-decoder molmo2 moshi moss_transcribe_diarize mpt muse_glimmer muse_spark
    musicgen musicgen_melody mvp nanochat nemotron nemotron_h nemotron_h_omni olmo olmo2 olmo3
    olmo_hybrid olmoe openai-gpt opt ovis2 paddleocr_vl paligemma pegasus perception_lm persimmon
    phi phi3 phi4_multimodal phimoe pi0 pix2struct plbart pp_chart2table pp_formulanet prophetnet
    qianfan_ocr qwen2 qwen2_5_omni_thinker qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe
    qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_thinker qwen3_vl
    qwen3_vl_moe qwen4_exp qwen4_exp_text recurrent_gemma reformer rembert roberta
    roberta-prelayernorm roc_bert roformer rwkv seed_oss shieldgemma2 smollm3 smolvlm solar_open
    stablelm starcoder2 step3p7 t5gemma2 trocr udop unlimited_ocr vaultgemma video_llama_3
    video_llava vipllava vision-encoder-decoder whisper xglm xlm xlm-roberta xlm-roberta-xl xlnet
    xlstm xmod youtu zamba zamba2 zaya
"""
TRANSFORMERS_TYPES = frozenset(TYPES_TEXT.split())
"""Types with a causal or an image-and-text class."""
