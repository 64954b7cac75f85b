"""Drawings of the documentation: one for each module with `draw`. `python -m drawings docs/images` writes them."""
