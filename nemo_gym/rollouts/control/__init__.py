"""Control a running collection: pause it, change its concurrency, cancel or rerun single rollouts, or end it."""
