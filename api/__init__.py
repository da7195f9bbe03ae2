"""Ways in: command line, REST service, Python."""
