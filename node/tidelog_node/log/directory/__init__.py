"""A log directory: its lock, identity and checkpoints, and the folders of the replicas in it."""
