"""Plans: what is decided, as a document."""

from .plan import Plan as Plan
