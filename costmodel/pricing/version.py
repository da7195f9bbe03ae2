"""Version of the pricing, raised by every change that moves prices.

1: a stage's message waits for its reductions. 2: it leaves when its layers' own work is done. 3:
reduce-scatters of cores over a network are all-reduces. 4: parallel blocks of one norm share their
collectives; quantize kernels have prices of their own. 5: documents of like lengths share a call of
attention on cores. 6: the last chunk's gradients of experts' weights are beside its way back.
"""

from __future__ import annotations

PRICING_VERSION = 6
