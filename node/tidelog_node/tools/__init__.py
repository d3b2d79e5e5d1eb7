"""Tools that read a node's files without the node: ``tidelog log dump`` and ``tidelog log verify``."""
