"""The launcher, which starts, watches and stops the server processes of a run."""
