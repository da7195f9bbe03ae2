"""datasets clusters."""
