"""Run a plan on torch.distributed."""
