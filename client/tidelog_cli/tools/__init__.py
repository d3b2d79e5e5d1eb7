"""Tools that read a node's or a controller's files: ``tidelog log`` and ``tidelog quorum dump``."""
