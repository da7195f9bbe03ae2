"""The model families that the executor builds itself."""
