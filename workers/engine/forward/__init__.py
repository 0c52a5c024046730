"""One forward pass over packed tokens, and the heads behind it."""
