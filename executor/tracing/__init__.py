"""executor tracing."""
