"""Records of the token ids of model calls, made in the model server for agents that do not return token ids."""
