"""A node from the controllers' point of view, without I/O: its registration, heartbeats and metadata."""
