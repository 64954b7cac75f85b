"""Screenshots of the viewer for the documentation, from real collections with a scripted model."""
