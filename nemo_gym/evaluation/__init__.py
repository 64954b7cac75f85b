"""Decide between runs: intervals, comparisons, gates, and evaluations of one's own."""
