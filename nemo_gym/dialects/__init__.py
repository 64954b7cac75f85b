"""Pure functions that convert between API dialects, without servers or network access."""
