"""The service: planning over HTTP; limited children compute."""
