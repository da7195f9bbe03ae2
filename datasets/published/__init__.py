"""Training runs that others measured and published, with the layout they ran under."""
