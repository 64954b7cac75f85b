"""Calls to another server of the run."""
