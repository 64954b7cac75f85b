"""Records of a rollout's model calls and its agent's observations. Off by default."""
