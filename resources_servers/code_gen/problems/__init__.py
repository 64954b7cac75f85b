"""Families of generated programming problems, with their tests and wording."""
