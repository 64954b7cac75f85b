"""The index of one run: where each rollout is, and the values by which the pages filter and sort."""
