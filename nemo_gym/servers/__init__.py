"""Base classes of resources servers, agents and model servers."""
