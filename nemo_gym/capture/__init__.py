"""Records of a rollout's model calls and its agent's observations. Recording is off by default."""
