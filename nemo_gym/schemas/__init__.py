"""Pydantic models of the requests and responses of the three tiers."""
