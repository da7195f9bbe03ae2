"""Which technique values are legal and best."""
