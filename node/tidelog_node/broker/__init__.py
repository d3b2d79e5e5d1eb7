"""A node as the controllers see it, without I/O: its registration, its heartbeats, the metadata that it follows."""
