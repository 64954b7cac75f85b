"""The rollout that the current task works for, and its deadline."""
