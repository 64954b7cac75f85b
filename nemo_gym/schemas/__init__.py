"""The words of the wire: what the three tiers say to each other. Pydantic only."""
