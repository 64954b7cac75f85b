"""Pydantic models of the requests and responses of model, resources and agent servers."""
