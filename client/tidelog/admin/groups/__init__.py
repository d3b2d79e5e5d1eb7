"""Administration of consumer groups."""
