"""What exists only for code that was written for the published package: its names, helpers and configuration.

This room may import everything. Only modules that re-export its names import it.
"""
