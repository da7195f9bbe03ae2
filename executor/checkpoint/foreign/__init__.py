"""Checkpoints of other frameworks, read without running anything that they hold.

Enters: a folder of torch's distributed checkpoint, of Megatron-core, of safetensors, or of ours.
Leaves: names, whole shapes, boxes and byte ranges; parts of our parameters and their moments.
Imports: spec, ``huggingface`` (maps of names), ``stage``, the ``checkpoint`` around it. Only
``tensors`` and what is built on it load torch.
"""
