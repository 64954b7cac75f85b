from .count import count_letters

__all__ = ["count_letters"]
