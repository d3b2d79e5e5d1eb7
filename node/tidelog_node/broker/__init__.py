"""A node as the controllers see it, without I/O: its registration, heartbeats and controlled shutdown."""
