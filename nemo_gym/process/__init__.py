"""The code that runs in one server process: its start, its serving and its shutdown."""
