"""Configurations of the transformers library, a group of related families a file."""
