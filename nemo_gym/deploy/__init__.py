"""Manifests that run the servers of a config, and a collection, in containers."""
