"""executor models moe."""
