"""Tools that read what a node has on its disk, without the node: ``tidelog log dump`` and ``tidelog log verify``."""
