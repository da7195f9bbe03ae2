"""Examples in the service's description: requests and answers.

The answers are from ``plan simulate`` and ``plan``, figures and lists shortened; a test compares
their keys with a real answer's.
"""

from __future__ import annotations

from typing import Any

from ....costmodel.pricing.version import PRICING_VERSION
from ....spec.report.report import FLOPS_CONVENTION

PLAN_EXAMPLE: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "8xH100-80GB",
    "workload": {"global_batch": 64, "seq_len": 8192},
}
SIMULATION_EXAMPLE: dict[str, Any] = {
    **PLAN_EXAMPLE,
    "strategy": {"tp": 2, "micro_batch": 1, "shard": "zero1", "recompute": "full"},
}
_PLAN: dict[str, Any] = {
    "cluster": {
        "groups": [
            {
                "device": "H100-SXM-80GB",
                "devices_per_node": 8,
                "memory": {"hbm_bytes": 85028000000},
                "name": "main",
                "node": "HGX-H100",
                "nodes": 1,
            }
        ],
        "levels": [{"fabric": "NVLink4", "group_size": 8, "level": "intra_node"}],
    },
    "models": {
        "main": {
            "name": "llama-3-8b",
            "towers": [
                {
                    "layers": [
                        {"layer": {"hidden": 4096, "kind": "embedding", "vocab": 128256}},
                        {
                            "count": 32,
                            "layer": {
                                "attention": {
                                    "head_dim": 128,
                                    "heads": 32,
                                    "kv_heads": 8,
                                    "rope_theta": 500000.0,
                                },
                                "hidden": 4096,
                                "kind": "block",
                                "mlp": {"ffn": 14336},
                            },
                        },
                        {"layer": {"hidden": 4096, "kind": "head", "vocab": 128256}},
                    ],
                    "name": "decoder",
                }
            ],
        }
    },
    "programs": [
        {
            "schedule": {"kind": "1f1b", "micro_batch": 1, "microbatches": 16},
            "stages": [
                {
                    "devices": [{"count": 8, "device_group": "main", "first_rank": 0}],
                    "virtual_stages": [
                        [
                            {
                                "layers": ["decoder", 0, 0],
                                "strategy": {"shard": {"optimizer": 4}, "tp": 2},
                            },
                            {
                                "layers": ["decoder", 1, 32],
                                "strategy": {
                                    "recompute": "full",
                                    "shard": {"optimizer": 4},
                                    "tp": 2,
                                },
                            },
                            {
                                "layers": ["decoder", 33, 33],
                                "strategy": {"shard": {"optimizer": 4}, "tp": 2},
                            },
                        ]
                    ],
                }
            ],
        }
    ],
    "schema_version": 1,
    "workloads": {"main": {"global_batch": 64, "seq_len": 8192}},
}
_PREDICTION: dict[str, Any] = {
    "breakdown_s": {
        "attention": 0.9837,
        "bubble": 0.0,
        "elementwise": 2.183,
        "exposed_cp": 0.0,
        "exposed_dp": 0.0109,
        "exposed_ep": 0.0,
        "exposed_pp": 0.0,
        "exposed_tp": 0.742,
        "host": 0.001,
        "matmul": 3.997,
        "optimizer": 0.01389,
        "recompute": 1.958,
        "unattributed": 0.0,
    },
    "feasible": True,
    "flops_per_s_per_device": 383800000000000.0,
    "hfu": 0.5245,
    "interval_level": 0.8,
    "memory": [
        {
            "allocated_bytes": 41573536912,
            "by": {
                "activations": 2214666240,
                "communication": 201326592,
                "context": 536870912,
                "fragmentation": 1662941476,
                "gradients": 16061054976,
                "optimizer": 8030528652,
                "parameters": 12045791232,
                "workspace": 3255050244,
            },
            "capacity_bytes": 85028000000,
            "device_group": "main",
            "program": "main",
            "reserved_bytes": 44008230324,
            "stage": 0,
            "tier": "hbm",
        }
    ],
    "mfu": 0.3879,
    "mfu_causal": 0.3702,
    "samples_per_s": 6.471,
    "step_time_interval_s": [7.417, 12.36],
    "step_time_s": 9.89,
    "tokens_per_s": 53016.0,
    "tokens_per_s_per_device": 6627.0,
    "flops_convention": FLOPS_CONVENTION,
}
REPORT_EXAMPLE: dict[str, Any] = {
    "plan": _PLAN,
    "prediction": _PREDICTION,
    "plan_hash": "sha256:4495f167f09d728617a741900b732b36a46b5667ee85b9a8652eeb6e81f94ae9",
    "assumptions": [
        {
            "path": "cluster.groups.0.device",
            "value": "H100-SXM-80GB",
            "why": "H100-80GB means this: the usual memory size, SXM where a device has forms",
        }
    ],
    "source_share": {"analytic": 1.0, "learned": 0.0, "measured": 0.0},
    "provenance": {
        "calibration": "none",
        "stack": "shardwright 0.1.0 (attention flash, overlap dp)",
        "tables": ["catalogue"],
        "versions": {"shardwright": "0.1.0", "pricing": str(PRICING_VERSION)},
    },
}
PLAN_REPORT_EXAMPLE: dict[str, Any] = {
    **REPORT_EXAMPLE,
    "common_stack": {
        "stack": "torchtitan",
        "plan": REPORT_EXAMPLE["plan"],
        "prediction": REPORT_EXAMPLE["prediction"],
    },
    "search": {
        "candidates": 10,
        "gap": 0.07033,
        "left_out": [
            {
                "what": "compile default and cuda_graph",
                "why": "what it gains is unmeasured, so it is taken only where it is pinned",
            }
        ],
        "lower_bound_s": 6.08,
        "objective": {
            "name": "throughput",
            "unit": "seconds a step",
            "value": 6.508,
            "bound": 6.08,
        },
        "tie_set": {
            "within": 0.05,
            "size": 2,
            "simplest": "sha256:4495f167f09d728617a741900b732b36a46b5667ee85b9a8652eeb6e81f94ae9",
            "strategies": 1,
        },
        "seconds": 1.059,
        "space": {"tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8]},
        "stopped_by": "work",
    },
    "alternatives": [{"plan": _PLAN, "prediction": _PREDICTION, "lost_by": "+8.2%: matmul"}],
    "sensitivities": [
        {"resource": "device.flops", "change": 0.01, "step_time_change": -0.0085},
        {"resource": "intra_node.bandwidth", "change": 0.01, "step_time_change": -0.0002},
    ],
}
MODELS_EXAMPLE: dict[str, Any] = {
    "default": "shardwright-demo",
    "models": [{"name": "gpt2", "parameters": 124439808, "layers": 12, "hidden": 768}],
}
MODEL_EXAMPLE: dict[str, Any] = {
    "name": "gpt2",
    "kind": "dense",
    "parameters": 124439808,
    "layers": 12,
    "weights_bytes": 248879616,
    "training_bytes": 2239916544,
    "layer_kinds": [
        {
            "tower": "decoder",
            "layer": "block: attention 12/12, gelu_tanh 3072",
            "count": 12,
            "parameters": 7087872,
        }
    ],
    "adapter_targets": ["query", "key", "value", "output", "up", "down"],
    "assumptions": [],
    "spec": {"name": "gpt2", "tie_embeddings": True},
}
CLUSTERS_EXAMPLE: dict[str, Any] = {
    "forms": ["NODESxDEVICESxTYPE[@FABRIC]"],
    "devices": [{"name": "H100-SXM-80GB", "capacity_bytes": 85028000000}],
    "nodes": [{"name": "HGX-H100", "devices_per_node": 8, "link": "NVLink4"}],
    "fabrics": [{"name": "NVLink4", "scope": "node", "bandwidth_bytes_per_s": 4.5e11}],
    "instances": [{"name": "p4de.24xlarge", "text": "1x8xA100-SXM-80GB@4x100G-EFA"}],
    "levels": [{"level": "intra_node", "joins": "devices of one node"}],
    "disagreements": [
        {"subject": "NVLink4", "figure": "bandwidth_bytes_per_s", "taken": 450000000000.0}
    ],
    "local": {"cluster": "local:2", "cores": 2, "memory_bytes": 25276502016},
}
