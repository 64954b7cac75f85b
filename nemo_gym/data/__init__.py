"""Prepare datasets before a run: download or make their files, check the rows, and apply prompts and skills."""
