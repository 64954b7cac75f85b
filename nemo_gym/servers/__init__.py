"""Base classes of the three tiers."""
