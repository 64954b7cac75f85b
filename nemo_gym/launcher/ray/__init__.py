"""Servers as actors of a Ray cluster."""
