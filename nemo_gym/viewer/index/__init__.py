"""The index of one run: the place of each rollout in the files, and the values by which pages filter and sort."""
