"""Files of a recipe's sources as documents, and tokenizers.

Enters: sources, files. Leaves: texts with their names; token numbers.
Imports: recipes, spec; libraries of the extra ``data`` inside functions alone.
"""
