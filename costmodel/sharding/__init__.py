"""costmodel sharding."""
