"""Run many tasks through their agents and record each outcome."""
