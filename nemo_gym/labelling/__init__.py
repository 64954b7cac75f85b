"""An evaluation of your own: a benchmark from a table of questions, and people who label its rollouts."""
