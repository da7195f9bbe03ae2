"""executor train."""
