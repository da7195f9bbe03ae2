"""Largest sizes that are taken, of every kind of input, each with its reason.

Flags, typed keys, documents and request bodies read them here. Each is far above what anyone has
trained, and low enough that refusing costs nothing and simulating has bounded work.
"""

from __future__ import annotations

MAX_SEQ_LEN = 2**30
"""Tokens of a sample: a hundred times the longest sequences that were trained on (2^23)."""
MAX_SAMPLES = 2**40
"""Samples, or tokens, of a step: products with a sequence stay exact in Python and in 80 bits."""
MAX_TRAINING_TOKENS = 10**18
"""Tokens of a whole training: ten thousand times the largest."""
MAX_WIDTH = 2**40
"""Any one size of a layer; where products of them overflow 64 bits of bytes, they are refused."""
MAX_LAYERS = 2**14
"""Layers of a model, embedding and head counted: plans list them one by one."""
MAX_DEGREE = 2**24
"""Ranks of a group, stages, samples of a micro-batch: as many as there can be nodes."""
MAX_NODES, MAX_DEVICES_PER_NODE = 2**24, 2**16
"""Nodes of a cluster, devices of a node: link levels are counted, never listed by node."""
MIN_BYTES_PER_S = 1.0
"""A typed link's rate; over slower ones steps last longer than numbers count."""
MAX_PLAN_DEVICES = 2**22
"""Devices in the stages of a plan's file, whose rank groups are laid out: forty times 100,000."""
MAX_PASSES = 2**21
"""Passes, forward and backward, of one simulated step: about half a minute's work."""
MAX_STORED_BYTES = 2**30
"""What a service keeps for one token, answers among it: ten thousand plans of a hundred kB."""
MAX_CACHED_BYTES = 2**28
"""Answers of sweeps that a service keeps for whoever asks the same: the newest ones."""
MAX_LOSS_CHUNKS = 2**12
"""Chunks of tokens of a fused loss: each is three products to launch, and to price."""
