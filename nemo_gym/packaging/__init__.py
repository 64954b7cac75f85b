"""Environments as packages: wheels with a manifest, made from folders and installed."""
