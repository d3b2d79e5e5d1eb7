"""``tidelog node``: the life of single nodes."""
