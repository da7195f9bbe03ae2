"""Jobs that survive: searches on a durable queue, their events, and the processes that work."""
