"""Conversion between the Responses, Chat Completions and Anthropic Messages APIs, without network access."""
