"""People label rollouts: a benchmark from a table of questions, and how well graders agree with people."""
