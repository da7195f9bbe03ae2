"""Searching clusters of several device groups: stages of unequal device, width and share."""
