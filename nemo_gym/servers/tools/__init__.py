"""Tools of a resources server: methods that become routes and JSON schemas."""
