"""The context of the current asyncio task: the rollout that it works for, its deadline and its policy."""
