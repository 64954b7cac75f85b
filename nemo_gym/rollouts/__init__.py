"""Run many tasks through their agents and keep what came of each."""
