"""Configuration from YAML and the command line as one frozen `RunConfig`."""
