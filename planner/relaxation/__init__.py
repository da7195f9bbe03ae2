"""The linear relaxation of a pipeline's step: bounds near the best plan, and plans near them."""
