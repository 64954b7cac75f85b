"""Control of a running collection: pause, other concurrency, single rollouts, its end."""
