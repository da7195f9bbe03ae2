"""Launch of ranks: worker pool, joining, preflight checks, heartbeats and watchdog.

Enters: a plan, a job name with a JSON payload, timeouts.
Leaves: results and events of the job, ``RankContext``, one ``RunError`` that names a broken rank.
Imports: spec, ``groups``, ``torch_compat``; pool, process, channel and watchdog load no torch.
"""
