"""spec workload."""
