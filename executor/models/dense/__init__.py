"""Dense decoders: GPT-2, Llama, Mistral, Qwen."""
