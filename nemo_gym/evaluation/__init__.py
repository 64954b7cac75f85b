"""Evaluation of runs: confidence intervals, comparisons, gates, and checks of models before a run."""
