"""The service: planning and simulation over HTTP, each request answered by a limited child."""
