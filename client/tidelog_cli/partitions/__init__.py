"""``tidelog partition``: reassignments and elections."""
