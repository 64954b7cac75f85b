"""The rollout viewer: a local web application over the files of runs."""
