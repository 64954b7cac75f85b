"""Rollout collections as Slurm jobs: placement of the servers, the batch script, and the submitted jobs."""
