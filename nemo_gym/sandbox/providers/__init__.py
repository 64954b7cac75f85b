"""Sandbox providers, one folder each, found by name."""
