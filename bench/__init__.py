"""Measurement programs. Each starts real processes and prints a table and a JSON line."""
