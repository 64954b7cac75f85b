"""Makes the pages of the documentation site: the written ones, and those that are made from the code."""
