"""spec report."""
