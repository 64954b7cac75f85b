"""Records of what happened inside a rollout: its model calls, and what its agent observed. Off unless asked for."""
