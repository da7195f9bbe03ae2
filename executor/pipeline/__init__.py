"""executor pipeline."""
