"""Plans: every decision of a run, and derived messages, buffers, costs.

Enters: models, clusters, workloads and decisions; plan documents.
Leaves: ``Plan``, stage messages, send buffers, technique groups, rental cost per second.
Imports: codec, errors, choices, strategy, model, workload, cluster, schedules, parallel,
technique, technique_values, techniques. ``Plan.check`` alone delegates, by a lazy import, to rules.
"""

from .plan import Plan as Plan
