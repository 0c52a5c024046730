"""Encodings of texts seen before, in tiers with byte budgets."""
