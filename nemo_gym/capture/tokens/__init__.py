"""Record the token ids of model calls apart from their texts, for agents that do not pass token ids on."""
