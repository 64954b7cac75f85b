"""Confinement of untrusted code with bubblewrap and control groups."""
