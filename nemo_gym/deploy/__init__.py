"""Manifests that run the servers of a config in containers, and a collection if one is given."""
