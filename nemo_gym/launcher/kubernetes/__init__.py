"""Generate manifests that run a config's servers, and optionally a rollout collection, in containers."""
