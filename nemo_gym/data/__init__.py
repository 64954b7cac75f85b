"""Datasets before a run: prompts, skills, checks, and the gathering of a config's files."""
