"""Datasets before a run: prompts, skills, checks, and collecting a config's files."""
