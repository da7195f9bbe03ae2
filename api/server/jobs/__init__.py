"""Durable jobs: searches on a queue, their events, their workers."""
