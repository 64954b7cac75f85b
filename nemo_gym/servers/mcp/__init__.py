"""Tools of a resources server over MCP."""
