"""Collections as Slurm jobs: placement of the servers, the batch script, and the jobs that run."""
