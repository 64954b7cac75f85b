"""Programs that measure: each starts real processes, prints one table and a JSON line."""
