"""Files that start a plan on a cluster: torchrun, Slurm, Kubernetes.

Enters: a plan. Leaves: texts by file name. Imports: datasets' catalogue, spec.
"""
