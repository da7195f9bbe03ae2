"""Choose a plan: decision tree, dynamic programming, proven bounds."""
