"""Constraints on the form of a text that can be checked by program: those of IFEval, most of IFBench, and more.

Ids and arguments are those of the public data (`keywords:frequency` with `keyword`, `frequency` and `relation`); the
checks are our own. Each is a function `(text, *, its arguments) -> bool` in the module of its subject, listed under
its ids in that module's `CHECKS`. All scan the text a fixed number of times, whatever it holds.
"""

from nemo_gym.grading.constraints.registry import Constraint, constraint, constraint_ids
from nemo_gym.grading.constraints.variants import followed, loose_variants

__all__ = ["Constraint", "constraint", "constraint_ids", "followed", "loose_variants"]
