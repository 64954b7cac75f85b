"""Who makes sandboxes: one folder each, found by name."""
