"""Evaluation of runs: confidence intervals, comparisons, gates, human labels, and benchmarks from tables."""
