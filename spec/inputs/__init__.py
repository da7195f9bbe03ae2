"""spec inputs."""
